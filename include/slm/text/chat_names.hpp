// The chat templates that slm writes, and their names.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

/// How a family of models wants a conversation written. u, a, s: what user, assistant and system said.
enum class Template {
  plain,           // no markers, one message a line: for models that were never taught to chat
  amd_olmo,        // AMD-OLMo-SFT and -SFT-DPO, OLMo-Instruct: <|endoftext|><|user|>\n u \n<|assistant|>\n
  llama2,          // Llama-2-chat, CodeLlama-Instruct: <s>[INST] <<SYS>>\n s \n<</SYS>>\n\n u [/INST]
  llama3,          // Llama-3-Instruct: <|start_header_id|>user<|end_header_id|>\n\n u <|eot_id|>
  llama31,         // Llama-3.1 and 3.3: the same with two fixed dates in front of the system message
  llama32,         // Llama-3.2: the same with the day's date as the second one
  mistral_v01,     // <s>[INST] u [/INST] a</s> [INST] u [/INST]
  mistral_v02,     // <s>[INST] u [/INST] a</s>[INST] u [/INST]
  mistral_spaced,  // v0.1 and v0.2 as published since 2024: <s> [INST] u [/INST] a</s> [INST] u [/INST]
  mistral_v03,     // <s>[INST] u[/INST] a</s>[INST] u[/INST]; the system message stands before the last question
  phi3,            // Phi-3: <|user|>\n u <|end|>\n<|assistant|>\n
  phi3_vision,     // the same; an answer that ends the conversation is not followed by another's header
  phi35,           // Phi-3.5-mini: as phi3, without an empty system message
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

inline constexpr std::array<NamedTemplate, 19> templates{{
    {Template::plain, "plain"},
    {Template::amd_olmo, "amd-olmo"},
    {Template::llama2, "llama-2"},
    {Template::llama3, "llama-3"},
    {Template::llama31, "llama-3.1"},
    {Template::llama32, "llama-3.2"},
    {Template::mistral_v01, "mistral-v0.1"},
    {Template::mistral_v02, "mistral-v0.2"},
    {Template::mistral_spaced, "mistral-spaced"},
    {Template::mistral_v03, "mistral-v0.3"},
    {Template::phi3, "phi-3"},
    {Template::phi3_vision, "phi-3-vision"},
    {Template::phi35, "phi-3.5"},
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

}}}
