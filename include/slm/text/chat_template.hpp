// Which chat template a model wants. Templates are programs in Jinja: slm runs none of them. It writes the published
// ones of its families, which it knows by digests of their sources.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/end_tokens.hpp"
#include "slm/io/gguf_fields.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/path_name.hpp"
#include "slm/text/chat_names.hpp"
#include "slm/text/chat_sources.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

namespace detail {

/// The chat template of a JSON file: a text, or several by name, of which "default" is the one for chats.
inline std::string jinja_in(const std::filesystem::path& path) {
  if (!file_exists(path)) return {};
  const OwnedJson json = read_json_object(path);
  const JsonFields fields(json, path.string());
  if (!fields.has("chat_template")) return {};
  const Json& found = fields.at("chat_template");
  if (!found.is_array()) return fields.string("chat_template", "");
  std::string text;
  for (const Json& entry : found) {
    if (!entry.is_object()) throw fields.bad("chat_template", "a list of objects", entry);
    const JsonFields named(entry, path.string());
    if (text.empty() || named.string("name", "") == "default") text = named.string("template", "");
  }
  return text;
}

/// The Jinja text of a folder: chat_template.jinja, else tokenizer_config.json's, else chat_template.json's. Empty when
/// it has none.
inline std::string jinja_of(const std::filesystem::path& folder) {
  if (const auto file = folder / "chat_template.jinja"; file_exists(file)) {
    constexpr std::size_t most = std::size_t{1} << 20;  // a template has some kilobytes
    return read_mapped(file, [](std::string_view text) { return std::string{text.substr(0, most)}; });
  }
  const std::string jinja = jinja_in(folder / "tokenizer_config.json");
  return jinja.empty() ? jinja_in(folder / "chat_template.json") : jinja;
}

/// "Mistral-7B-Instruct-v0.3" to "mistral_7b_instruct_v0_3"
inline std::string squeezed(std::string_view name) {
  std::string out;
  for (const char byte : name) {
    const auto code = static_cast<unsigned char>(byte);
    out += std::isalnum(code) != 0 ? static_cast<char>(std::tolower(code)) : '_';
  }
  return out;
}

/// What a model's name says of its template.
inline std::optional<Template> template_of_name(std::string_view name, std::string_view model_type) {
  struct Hint {
    std::string_view family, variant, model_type;
    Template value;
  };
  static constexpr Hint hints[]{
      {"olmo", "sft", "olmo", Template::amd_olmo},
      {"olmo", "instruct", "olmo", Template::amd_olmo},
      {"llama_2", "chat", "llama", Template::llama2},
      {"codellama", "instruct", "llama", Template::llama2},
      {"tinyllama", "chat", "llama", Template::zephyr},
      {"llama_3_1_", "instruct", "llama", Template::llama31},
      {"llama_3_2_", "instruct", "llama", Template::llama32},
      {"llama_3_3_", "instruct", "llama", Template::llama31},
      {"llama_3_8b", "instruct", "llama", Template::llama3},
      {"llama_3_70b", "instruct", "llama", Template::llama3},
      {"smollm2", "instruct", "llama", Template::smollm2},
      {"mistral", "instruct_v0_1", "mistral", Template::mistral_v01},
      {"mistral", "instruct_v0_2", "mistral", Template::mistral_v02},
      {"mistral", "instruct_v0_3", "mistral", Template::mistral_v03},
      {"phi_3_mini", "instruct", "phi3", Template::phi3},
      {"phi_3_5_mini", "instruct", "phi3", Template::phi35},
      {"qwen2_5", "instruct", "qwen2", Template::qwen25},
      {"qwen2", "instruct", "qwen2", Template::qwen2},
  };
  for (const Hint& hint : hints) {
    if (has(name, hint.family) && has(name, hint.variant) && (model_type.empty() || model_type == hint.model_type)) {
      return hint.value;
    }
  }
  if (!has(name, "qwen3_") || (!model_type.empty() && model_type != "qwen3")) return std::nullopt;
  for (const std::string_view other : {"base", "instruct", "thinking", "embed", "rerank", "coder", "guard"}) {
    if (has(name, other)) return std::nullopt;
  }
  return Template::qwen3;
}

/// What a model without a template says of it: names, each of them squeezed, and config.json's model_type.
struct Hints {
  std::vector<std::string> names;
  std::string model_type;
};

/// The folder's own name and config.json's _name_or_path without its owner. The folders above say nothing of it.
inline Hints hints_of_folder(const std::filesystem::path& folder) {
  Hints hints{.names = {squeezed(slm::detail::name_of_model(folder))}, .model_type = {}};
  if (const auto path = folder / "config.json"; file_exists(path)) {
    const OwnedJson json = read_json_object(path);
    const JsonFields fields(json, path.string());
    hints.model_type = fields.string("model_type", "");
    const std::string name = fields.string("_name_or_path", "");
    hints.names.push_back(squeezed(std::string_view{name}.substr(name.rfind('/') + 1)));
  }
  return hints;
}

/// The tokens that a template writes for Jinja's bos_token and eos_token; empty where it writes none.
struct SpecialTokens {
  std::string_view bos, eos;
};

constexpr SpecialTokens written_by(Template value) {
  switch (value) {
    case Template::llama2:
    case Template::mistral_v01:
    case Template::mistral_v02:
    case Template::mistral_spaced:
    case Template::mistral_v03: return {.bos = "<s>", .eos = "</s>"};
    case Template::llama3:
    case Template::llama31:
    case Template::llama32: return {.bos = "<|begin_of_text|>", .eos = ""};
    case Template::zephyr: return {.bos = "", .eos = "</s>"};
    case Template::amd_olmo: return {.bos = "", .eos = "<|endoftext|>"};
    default: return {};
  }
}

/// A special token as a folder's files state it, empty for null; nothing where they do not state it.
inline std::optional<std::string> stated_token(const std::filesystem::path& folder, const char* name) {
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto path = folder / file;
    if (!file_exists(path)) continue;
    const OwnedJson json = read_json_object(path);
    if (auto stated = slm::stated_token(json, path.string(), name)) return stated;
  }
  return std::nullopt;
}

/// The same of a GGUF file. kind: "bos" or "eos".
inline std::optional<std::string> stated_token(const GgufFile& file, std::string_view kind) {
  constexpr std::string_view tokens = "tokenizer.ggml.tokens";
  const GgufValue* id = file.fields().find(text("tokenizer.ggml.", kind, "_token_id"));
  if (id == nullptr || id->is_array || !file.fields().has(tokens)) return std::nullopt;
  const auto pieces = file.fields().strings(tokens);
  const std::int64_t at = id->integer().value_or(-1);
  if (at < 0 || static_cast<std::uint64_t>(at) >= pieces.size()) return std::nullopt;
  return std::string{pieces[static_cast<std::size_t>(at)]};
}

}  // namespace detail

/// Which template a model wants.
struct Choice {
  Template value = Template::plain;
  bool guessed = false;  // the model has no template, and its name suggests this one
};

/// The template that a model wants, a folder or a GGUF file: by its Jinja text, or, where it has none, by its name and
/// model_type. Throws Error ("chat.unrecognised").
inline Choice choose(const std::filesystem::path& model) {
  const auto refuse = [&model](std::string_view what) {
    return Error("chat.unrecognised", text("'", model.string(), "' ", what),
                 text("Name the one that fits with --template, plain for a model that was never taught to chat: ",
                      detail::known_names()));
  };
  std::string jinja;
  detail::Hints hints;
  std::optional<std::string> bos, eos;
  if (const auto path = gguf_of(model)) {
    const GgufFile file(*path);
    jinja = file.fields().string("tokenizer.chat_template", "");
    bos = detail::stated_token(file, "bos");
    eos = detail::stated_token(file, "eos");
    hints.names = {detail::squeezed(slm::detail::name_of_model(model)),
                   detail::squeezed(file.fields().string("general.name", ""))};
    file.check_unchanged();
  } else if (jinja = detail::jinja_of(model); jinja.empty()) {
    hints = detail::hints_of_folder(model);
  } else {
    bos = detail::stated_token(model, "bos_token");
    eos = detail::stated_token(model, "eos_token");
  }
  if (jinja.empty()) {
    for (const std::string& name : hints.names) {
      if (const auto guess = detail::template_of_name(name, hints.model_type)) return {*guess, true};
    }
    throw refuse("has no chat template, and none can be inferred from its name");
  }
  const auto found = recognise(jinja);
  if (!found) throw refuse("has a chat template that slm does not know");
  const auto check = [&](std::string_view name, std::string_view written, const std::optional<std::string>& stated) {
    if (written.empty() || !stated || *stated == written) return;
    throw refuse(text("has the chat template ", name_of(*found), ", with the ", name, " '", *stated, "', expected '",
                      written, "'"));
  };
  const detail::SpecialTokens tokens = detail::written_by(*found);
  check("bos_token", tokens.bos, bos);
  check("eos_token", tokens.eos, eos);
  return {*found, false};
}

/// choose() without saying whether the template was guessed.
inline Template recognise_model(const std::filesystem::path& model) { return choose(model).value; }

}}}
