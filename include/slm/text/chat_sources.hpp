// Where a model keeps its chat templates and special tokens.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/gguf_fields.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/path_name.hpp"
#include "slm/io/tokenizer_ends.hpp"
#include "slm/text/chat_embedded.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

/// A text of a model's files under its name: "default", "tool_use", ...
struct Source {
  std::string name, text;
};

struct Sources {
  std::vector<Source> templates;
  std::vector<std::pair<std::string, std::string>> tokens;  // bos_token and the like
  std::vector<std::string> names;                           // of the model, squeezed
  std::string model_type;
};

/// The text of a file with a template. Longer ones than templates may be are cut, and refused later.
inline std::string template_file(const std::filesystem::path& path) {
  constexpr std::size_t most = (std::size_t{1} << 20) + 1;
  return read_mapped(path, [](std::string_view text) { return std::string{text.substr(0, most)}; });
}

/// The chat templates of a JSON file: a text, or several by name.
inline std::vector<Source> templates_in(const std::filesystem::path& path) {
  if (!file_exists(path)) return {};
  const OwnedJson json = read_json_object(path);
  const JsonFields fields(json, path.string());
  if (!fields.has("chat_template")) return {};
  const Json& found = fields.at("chat_template");
  if (!found.is_array()) return {{"default", fields.string("chat_template", "")}};
  std::vector<Source> sources;
  for (const Json& entry : found) {
    if (!entry.is_object()) throw fields.bad("chat_template", "a list of objects", entry);
    const JsonFields named(entry, path.string());
    sources.push_back({named.string("name", ""), named.string("template", "")});
  }
  return sources;
}

/// The templates of a folder: chat_template.jinja with additional_chat_templates/, else those of chat_template.json,
/// else those of tokenizer_config.json.
inline std::vector<Source> templates_of_folder(const std::filesystem::path& folder) {
  std::vector<Source> sources;
  if (const auto file = folder / "chat_template.jinja"; file_exists(file)) {
    sources.push_back({"default", template_file(file)});
    std::error_code failure;
    const auto more = folder / "additional_chat_templates";
    std::vector<std::string> names;
    if (std::filesystem::is_directory(more, failure)) names = names_in(more, failure);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::filesystem::path path = more / path_of(name);
      if (path.extension() == ".jinja") sources.push_back({path.stem().string(), template_file(path)});
    }
    return sources;
  }
  sources = templates_in(folder / "chat_template.json");
  return sources.empty() ? templates_in(folder / "tokenizer_config.json") : sources;
}

/// Where a GGUF file keeps the template of this name.
inline std::string template_key(std::string_view name) {
  std::string key = "tokenizer.chat_template";
  if (name == "default") return key;
  key += '.';
  for (const char byte : name) key += std::isalnum(static_cast<unsigned char>(byte)) != 0 ? byte : '_';
  return key;
}

inline std::vector<Source> templates_of_gguf(const GgufFields& fields) {
  constexpr std::string_view key = "tokenizer.chat_template";
  std::vector<Source> sources;
  if (fields.has(key)) sources.push_back({"default", std::string{fields.string(key)}});
  if (!fields.has("tokenizer.chat_templates")) return sources;
  for (const std::string_view name : fields.strings("tokenizer.chat_templates")) {
    const std::string place = template_key(name);
    if (place != key && fields.has(place)) sources.push_back({std::string{name}, std::string{fields.string(place)}});
  }
  return sources;
}

inline constexpr std::string_view token_names[]{"bos_token", "eos_token", "unk_token", "sep_token",
                                                "pad_token", "cls_token", "mask_token"};

inline Sources sources_of_folder(const std::filesystem::path& folder) {
  Sources found{.templates = templates_of_folder(folder),
                .tokens = {},
                .names = {squeezed(slm::detail::name_of_model(folder))},
                .model_type = {}};
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto path = folder / file;
    if (!file_exists(path)) continue;
    const OwnedJson json = read_json_object(path);
    for (const std::string_view name : token_names) {
      const auto is_named = [name](const auto& token) { return token.first == name; };
      const auto stated = stated_token(json, path.string(), std::string{name}.c_str());
      if (!stated || stated->empty()) continue;
      if (std::none_of(found.tokens.begin(), found.tokens.end(), is_named)) found.tokens.emplace_back(name, *stated);
    }
  }
  if (const auto path = folder / "config.json"; file_exists(path)) {
    const OwnedJson json = read_json_object(path);
    const JsonFields fields(json, path.string());
    found.model_type = fields.string("model_type", "");
    const std::string name = fields.string("_name_or_path", "");
    found.names.push_back(squeezed(std::string_view{name}.substr(name.rfind('/') + 1)));
  }
  return found;
}

inline Sources sources_of_gguf(const std::filesystem::path& model, const GgufFields& fields) {
  Sources found{.templates = templates_of_gguf(fields),
                .tokens = {},
                .names = {squeezed(slm::detail::name_of_model(model)), squeezed(fields.string("general.name", ""))},
                .model_type = {}};
  constexpr std::string_view kinds[]{"bos", "eos", "unknown", "seperator", "padding", "cls", "mask"};
  constexpr std::string_view all = "tokenizer.ggml.tokens";
  if (!fields.has(all)) return found;
  const auto pieces = fields.strings(all);
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    const GgufValue* id = fields.find(text("tokenizer.ggml.", kinds[i], "_token_id"));
    if (id == nullptr || id->is_array) continue;
    const std::int64_t at = id->integer().value_or(-1);
    if (at < 0 || static_cast<std::uint64_t>(at) >= pieces.size()) continue;
    found.tokens.emplace_back(token_names[i], pieces[static_cast<std::size_t>(at)]);
  }
  return found;
}

/// The chat templates and special tokens of a model: a folder or a GGUF file.
inline Sources sources_of(const std::filesystem::path& model) {
#if !defined(SLM_NO_GGUF)
  if (const auto path = gguf_of(model)) {
    return read_gguf_fields(*path, [&](const GgufFields& fields) { return sources_of_gguf(model, fields); });
  }
#endif
  return sources_of_folder(model);
}

}}}
