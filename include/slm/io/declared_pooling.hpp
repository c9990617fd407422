// The pooling that a model's files declare: sentence-transformers' modules, or GGUF's pooling_type.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm { inline namespace v0_1 {

struct DeclaredPooling {
  std::string pooling;     // "mean", "last", or an unsupported kind: "cls", "max", "rank", "none", ...
  std::string more;        // other unsupported requirements, a module or a default prompt; empty: none
  bool normalize = false;  // vectors are normalised to length 1
};

namespace detail {

/// The pooling of a 1_Pooling/config.json; several kinds are joined by +.
inline std::string pooling_in(const std::filesystem::path& path) {
  const OwnedJson json = read_json_object(path);
  const JsonFields fields(json, path.string());
  std::string named = fields.string("pooling_mode", "");
  if (named == "lasttoken") named = "last";
  if (!named.empty()) return named;
  constexpr std::array<std::pair<const char*, std::string_view>, 6> flags{{
      {"pooling_mode_cls_token", "cls"},
      {"pooling_mode_max_tokens", "max"},
      {"pooling_mode_mean_tokens", "mean"},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
      {"pooling_mode_weightedmean_tokens", "weightedmean"},
      {"pooling_mode_lasttoken", "last"},
  }};
  for (const auto& [flag, name] : flags) {
    // An absent flag means mean pooling.
    if (fields.boolean(flag, name == "mean")) named += text(named.empty() ? "" : "+", name);
  }
  return named.empty() ? "none" : named;
}

/// The class name of a module: "Pooling" for "sentence_transformers.models.Pooling".
inline std::string_view class_of(std::string_view type) { return type.substr(type.rfind('.') + 1); }

inline std::optional<DeclaredPooling> pooling_of_folder(const std::filesystem::path& folder) {
  constexpr std::string_view advice = "Take the file from the model's original repository";
  DeclaredPooling found;
  const auto add = [&found](std::string_view what) { found.more += text(found.more.empty() ? "" : ", ", what); };
  bool declared = false;
  if (const auto path = folder / "modules.json"; file_exists(path)) {
    const OwnedJson modules =
        read_mapped(path, [&](std::string_view text) { return parse_json(text, path.string(), advice); });
    const auto bad = [&path, advice](const Json& value, std::string_view expected) {
      return Error("json.bad-field", text("'", path.string(), "' holds ", quote_json(value), ", expected ", expected),
                   advice);
    };
    if (!modules.is_array()) throw bad(modules, "a list of objects");
    for (const Json& module : modules) {
      if (!module.is_object()) throw bad(module, "a list of objects");
      const JsonFields fields(module, path.string());
      const std::string type = fields.string("type", "");
      const std::string_view name = class_of(type);
      if (name == "Normalize") {
        found.normalize = true;
      } else if (name == "Pooling") {
        const std::filesystem::path place = path_of(fields.string("path", "1_Pooling"));
        const bool outside = std::find(place.begin(), place.end(), "..") != place.end();
        if (outside || place.has_root_path()) throw bad(fields.at("path"), "a folder inside the model folder");
        found.pooling = pooling_in(folder / place / "config.json");
        declared = true;
      } else if (name != "Transformer") {
        add(text("the module ", name));
      }
    }
  } else if (const auto pooling = folder / "1_Pooling" / "config.json"; file_exists(pooling)) {
    found.pooling = pooling_in(pooling);
    declared = true;
  }
  if (!declared) return std::nullopt;
  if (const auto path = folder / "config_sentence_transformers.json"; file_exists(path)) {
    const OwnedJson json = read_json_object(path);
    const std::string prompt = JsonFields(json, path.string()).string("default_prompt_name", "");
    if (!prompt.empty()) add(text("the default prompt '", prompt, "'"));
  }
  return found;
}

inline std::optional<DeclaredPooling> pooling_of_gguf(const GgufFields& fields) {
  const std::string key = text(fields.string("general.architecture", ""), ".pooling_type");
  if (!fields.has(key)) return std::nullopt;
  constexpr std::array<std::string_view, 5> names{"none", "mean", "cls", "last", "rank"};
  return DeclaredPooling{.pooling = std::string{names[static_cast<std::size_t>(fields.integer(key, 0, 4))]},
                         .more = {}};
}

}  // namespace detail

/// The pooling that a folder or GGUF file declares; nothing if it declares none. Throws Error on malformed files.
inline std::optional<DeclaredPooling> declared_pooling(const std::filesystem::path& model) {
  if (const auto path = gguf_of(model)) return read_gguf_fields(*path, detail::pooling_of_gguf);
  return detail::pooling_of_folder(model);
}

}}
