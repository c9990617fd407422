// Which chat template a model wants. Templates are programs in Jinja; slm knows the published ones of its
// families by their tell-tale strings and does not run any other.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm::inline v0_1::chat {

/// How a family of models wants a conversation written. u, a, s: what user, assistant and system said.
enum class Template {
  plain,           // no markers, one message a line: for models that were never taught to chat
  amd_olmo,        // AMD-OLMo-SFT and -SFT-DPO, OLMo-Instruct: <|endoftext|><|user|>\n u \n<|assistant|>\n
  llama2,          // Llama-2-chat, CodeLlama-Instruct: <s>[INST] <<SYS>>\n s \n<</SYS>>\n\n u [/INST]
  llama3,          // Llama-3-Instruct: <|start_header_id|>user<|end_header_id|>\n\n u <|eot_id|>
  llama31,         // Llama-3.1 and 3.2: the same with two dates in front of the system message
  mistral_v01,     // <s>[INST] u [/INST] a</s> [INST] u [/INST]
  mistral_v02,     // <s>[INST] u [/INST] a</s>[INST] u [/INST]
  mistral_spaced,  // v0.1 and v0.2 as published since 2024: <s> [INST] u [/INST] a</s> [INST] u [/INST]
  mistral_v03,     // <s>[INST] u[/INST] a</s>[INST] u[/INST]; the system message stands before the last question
  phi3,            // <|user|>\n u <|end|>\n<|assistant|>\n
  zephyr,          // TinyLlama-Chat: <|user|>\n u </s>\n<|assistant|>\n
  chatml,          // <|im_start|>user\n u <|im_end|>\n<|im_start|>assistant\n
  smollm2,         // ChatML with SmolLM2's own system message where there is none
  qwen2,           // ChatML with Qwen2's
  qwen25,          // ChatML with Qwen2.5's
  qwen3,           // ChatML; earlier answers lose their thoughts
};

struct NamedTemplate {
  Template value;
  std::string_view name;
};

inline constexpr std::array<NamedTemplate, 16> templates{{
    {Template::plain, "plain"},
    {Template::amd_olmo, "amd-olmo"},
    {Template::llama2, "llama-2"},
    {Template::llama3, "llama-3"},
    {Template::llama31, "llama-3.1"},
    {Template::mistral_v01, "mistral-v0.1"},
    {Template::mistral_v02, "mistral-v0.2"},
    {Template::mistral_spaced, "mistral-spaced"},
    {Template::mistral_v03, "mistral-v0.3"},
    {Template::phi3, "phi-3"},
    {Template::zephyr, "zephyr"},
    {Template::chatml, "chatml"},
    {Template::smollm2, "smollm-2"},
    {Template::qwen2, "qwen-2"},
    {Template::qwen25, "qwen-2.5"},
    {Template::qwen3, "qwen-3"},
}};

constexpr std::string_view name_of(Template value) {
  for (const NamedTemplate& known : templates) {
    if (known.value == value) return known.name;
  }
  return "?";
}

namespace detail {

inline std::string known_names() {
  std::string names;
  for (const NamedTemplate& known : templates) names += text(names.empty() ? "" : ", ", known.name);
  return names;
}

inline bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace detail

/// The template of this name. Throws Error ("chat.unknown-template").
inline Template parse_template(std::string_view name) {
  for (const NamedTemplate& known : templates) {
    if (known.name == name) return known.value;
  }
  throw Error("chat.unknown-template", text("there is no chat template '", name, "'"),
              text("Use one of: ", detail::known_names()));
}

/// The template that a Jinja text is; nothing when it is none of those that slm knows.
inline std::optional<Template> recognise(std::string_view jinja) {
  // Files differ in their quotes, and write a newline as one or as \n.
  std::string source;
  for (std::size_t i = 0; i < jinja.size(); ++i) {
    const bool newline = jinja[i] == '\\' && i + 1 < jinja.size() && jinja[i + 1] == 'n';
    source += newline ? '\n' : jinja[i] == '"' ? '\'' : jinja[i];
    i += newline ? 1 : 0;
  }
  const auto has = [&source](std::string_view part) { return detail::has(source, part); };
  if (has("<|im_start|>")) {
    if (has("<|im_sep|>") || has("<|im_middle|>")) return std::nullopt;
    if (has("</think>") && has("enable_thinking")) return Template::qwen3;
    if (has("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")) return Template::qwen25;
    if (has("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>")) {
      return Template::smollm2;
    }
    if (has("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")) return Template::qwen2;
    return has("<|im_start|>system") || has("</think>") ? std::nullopt : std::optional{Template::chatml};
  }
  if (has("<|start_header_id|>") && has("<|eot_id|>")) {
    return has("Cutting Knowledge Date: December 2023") ? Template::llama31 : Template::llama3;
  }
  if (has("<<SYS>>") && has("[INST]")) return Template::llama2;
  if (has("[INST]")) {
    if (has("[SYSTEM_PROMPT]")) return std::nullopt;
    if (has("' [INST] '")) return Template::mistral_spaced;
    if (!has("'[INST] '")) return std::nullopt;  // the later tokenizers' templates have no spaces at all
    if (has("'[/INST]'")) return Template::mistral_v03;
    if (!has("' [/INST]'")) return std::nullopt;
    return has("eos_token + ' '") ? Template::mistral_v01 : Template::mistral_v02;
  }
  if (has("bos_token")) return std::nullopt;  // others that look like the next ones and begin otherwise
  if (has("<|end|>") && has("<|user|>")) return Template::phi3;
  if (has("<|user|>\n") && has("<|assistant|>")) {
    return has("'<|user|>\n' + message['content'] + eos_token") ? Template::zephyr : Template::amd_olmo;
  }
  return std::nullopt;
}

namespace detail {

/// The Jinja text of a folder: chat_template.jinja, else tokenizer_config.json's. Empty when it has none.
inline std::string jinja_of(const std::filesystem::path& folder) {
  if (const auto file = folder / "chat_template.jinja"; file_exists(file)) {
    const MappedFile mapped(file);
    constexpr std::size_t most = std::size_t{1} << 20;  // a template has some kilobytes
    return {reinterpret_cast<const char*>(mapped.bytes().data()), std::min(mapped.bytes().size(), most)};
  }
  const auto path = folder / "tokenizer_config.json";
  if (!file_exists(path)) return {};
  const Json json = read_json_object(path);
  const JsonFields fields(json, path.string());
  if (!fields.has("chat_template")) return {};
  const Json& found = fields.at("chat_template");
  if (!found.is_array()) return fields.string("chat_template", "");
  std::string text;  // several by name: the one for chatting is called default
  for (const Json& entry : found) {
    if (!entry.is_object()) throw fields.bad("chat_template", "a list of objects", entry);
    const JsonFields named(entry, path.string());
    if (text.empty() || named.string("name", "") == "default") text = named.string("template", "");
  }
  return text;
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
      {"llama_3_1", "instruct", "llama", Template::llama31},
      {"llama_3_2", "instruct", "llama", Template::llama31},
      {"llama_3", "instruct", "llama", Template::llama3},
      {"smollm2", "instruct", "llama", Template::smollm2},
      {"mistral", "instruct_v0_1", "mistral", Template::mistral_v01},
      {"mistral", "instruct_v0_2", "mistral", Template::mistral_v02},
      {"mistral", "instruct_v0_3", "mistral", Template::mistral_v03},
      {"phi_3", "instruct", "phi3", Template::phi3},
      {"qwen2_5", "instruct", "qwen2", Template::qwen25},
      {"qwen2", "instruct", "qwen2", Template::qwen2},
  };
  for (const Hint& hint : hints) {
    if (has(name, hint.family) && has(name, hint.variant) && (model_type.empty() || model_type == hint.model_type)) {
      return hint.value;
    }
  }
  const bool qwen3 = model_type == "qwen3" || (model_type.empty() && has(name, "qwen3"));
  return qwen3 && !has(name, "base") ? std::optional{Template::qwen3} : std::nullopt;
}

/// What a folder's place and config.json call the model, and its model_type.
inline std::pair<std::string, std::string> names_of_folder(const std::filesystem::path& folder) {
  std::string names, model_type;
  std::error_code ignored;
  // A download cache puts two folders below the one with the name.
  auto part = std::filesystem::absolute(folder, ignored).lexically_normal();
  for (int i = 0; i < 4 && part.has_relative_path(); ++i, part = part.parent_path()) {
    names += "/" + squeezed(part.filename().string());
  }
  if (const auto path = folder / "config.json"; file_exists(path)) {
    const Json json = read_json_object(path);
    const JsonFields fields(json, path.string());
    model_type = fields.string("model_type", "");
    names += "/" + squeezed(fields.string("_name_or_path", ""));
  }
  return {names, model_type};
}

}  // namespace detail

/// The template that a model wants, a folder or a GGUF file: by its Jinja text, or, where it has none, by its name and
/// model_type. Throws Error ("chat.unrecognised").
inline Template recognise_model(const std::filesystem::path& model) {
  std::string jinja, names, model_type;
  if (const auto path = gguf_of(model)) {
    const GgufFile file(*path);
    jinja = file.fields().string("tokenizer.chat_template", "");
    names =
        text(detail::squeezed(model.stem().string()), "/", detail::squeezed(file.fields().string("general.name", "")));
  } else if (jinja = detail::jinja_of(model); jinja.empty()) {
    std::tie(names, model_type) = detail::names_of_folder(model);
  }
  const auto found = jinja.empty() ? detail::template_of_name(names, model_type) : recognise(jinja);
  if (found) return *found;
  throw Error("chat.unrecognised",
              text("'", model.string(), "' ",
                   jinja.empty() ? "has no chat template, and its name tells of none"
                                 : "has a chat template that slm does not know"),
              text("Name the one that fits, plain for a model that was never taught to chat: ", detail::known_names()));
}

}  // namespace slm::chat
