// Chat templates for models that ship none, by name. They are slm's own texts for published formats.
#pragma once

#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

/// {% generation prompt %} of a format whose turns begin with a header.
inline std::string asked(std::string_view prompt) {
  return text("{% if add_generation_prompt %}{{ '", prompt, "' }}{% endif %}");
}

/// The beginning of a template whose other part shows no tools: it rewrites `messages` so that their texts show tools,
/// calls and results. role: of the message that lists the tools, system or user.
inline std::string tools_as_text(std::string_view role) {
  return text("{%- set slm = namespace(messages=[], tools='', first=true, result=false, role='", role, "') -%}", R"(
{%- if tools -%}
  {%- set slm.tools = 'You can call the functions that are described here, each as JSON:\n<tools>' -%}
  {%- for tool in tools -%}{%- set slm.tools = slm.tools + '\n' + tool|tojson -%}{%- endfor -%}
  {%- set slm.tools = slm.tools + '\n</tools>\nTo call a function, write its name and its arguments as JSON:\n'
      + '<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>' -%}
  {%- if slm.role == 'system' and messages[0].role != 'system' -%}
    {%- set messages = [{'role': 'system', 'content': ''}] + messages -%}
  {%- endif -%}
{%- endif -%}
{%- for m in messages -%}
  {%- set slm.content = m.content -%}
  {%- if m.role == 'tool' -%}
    {%- set slm.content = m.content if m.content is string else m.content|map(attribute='text')|join('\n') -%}
    {%- set slm.content = '<tool_response>\n' + slm.content + '\n</tool_response>' -%}
    {%- if slm.result -%}
      {%- set slm.content = slm.messages[-1].content + '\n' + slm.content -%}
      {%- set slm.messages = slm.messages[:-1] -%}
    {%- endif -%}
    {%- set slm.messages = slm.messages + [{'role': 'user', 'content': slm.content}] -%}
  {%- elif m.tool_calls -%}
    {%- if m.content is not string -%}
      {%- set slm.content = m.content|map(attribute='text')|join('\n') -%}
    {%- endif -%}
    {%- for call in m.tool_calls -%}
      {%- set slm.arguments = call.function.arguments -%}
      {%- if slm.arguments is not string -%}{%- set slm.arguments = slm.arguments|tojson -%}{%- endif -%}
      {%- set slm.content = slm.content + ('\n' if slm.content else '') + '<tool_call>\n{"name": '
          + call.function.name|tojson + ', "arguments": ' + slm.arguments + '}\n</tool_call>' -%}
    {%- endfor -%}
    {%- set slm.message = {'role': m.role, 'content': slm.content} -%}
    {%- if m.reasoning_content -%}
      {%- set slm.message = {'role': m.role, 'content': slm.content, 'reasoning_content': m.reasoning_content} -%}
    {%- endif -%}
    {%- set slm.messages = slm.messages + [slm.message] -%}
  {%- elif slm.tools and slm.first and m.role == slm.role -%}
    {%- set slm.first = false -%}
    {%- if slm.content is string -%}
      {%- set slm.content = slm.tools + ('\n\n' + slm.content if slm.content else '') -%}
    {%- else -%}
      {%- set slm.content = [{'type': 'text', 'text': slm.tools}] + slm.content -%}
    {%- endif -%}
    {%- set slm.messages = slm.messages + [{'role': m.role, 'content': slm.content}] -%}
  {%- else -%}
    {%- set slm.messages = slm.messages + [m] -%}
  {%- endif -%}
  {%- set slm.result = m.role == 'tool' -%}
{%- endfor -%}
{%- set tools = none -%}
{%- set messages = slm.messages %})");
}

/// ChatML; system: the message of models that are given none.
inline std::string chatml(std::string_view system) {
  std::string source;
  if (!system.empty()) {
    source =
        text("{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\n", system, "<|im_end|>\\n' }}{% endif %}");
  }
  return source +
         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" +
         asked("<|im_start|>assistant\\n");
}

/// ChatML with thoughts: those before the last question are left out.
inline std::string qwen3() {
  return R"({% set ns = namespace() %}
{% for m in messages %}
{% if m.role == 'user' and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}
{% set ns.last = loop.index0 %}
{% endif %}
{% endfor %}
{% set question = ns.last if ns.last is defined else messages|length - 1 %}
{% for m in messages %}
{% set thought = '' %}
{% set answer = m.content %}
{% if m.role == 'assistant' and '</think>' in m.content %}
{% set thought = m.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].strip('\n') %}
{% set answer = m.content.split('</think>')[-1].lstrip('\n') %}
{% endif %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and loop.index0 > question and (loop.last or thought) %}
{{- '<think>\n' + thought + '\n</think>\n\n' + answer.lstrip('\n') }}
{%- else %}
{{- answer }}
{%- endif %}
{{- '<|im_end|>\n' -}}
{% endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}
{{- '<think>\n\n</think>\n\n' }}
{%- endif %}
{%- endif %})";
}

/// date: an expression for "Today Date" in front of the system message; empty: there is no such line.
inline std::string llama3(std::string_view date) {
  std::string source = "{{ '<|begin_of_text|>' }}";
  if (!date.empty()) {
    source += text(
        "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' "
        "+ ",
        date,
        " + '\\n\\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content|trim }}"
        "{% set messages = messages[1:] %}{% endif %}{{ '<|eot_id|>' }}");
  }
  return source +
         "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content|trim + "
         "'<|eot_id|>' }}{% endfor %}" +
         asked("<|start_header_id|>assistant<|end_header_id|>\\n\\n");
}

/// The messages behind the system message, in turns.
inline std::string turns() {
  return "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
         "{% endif %}{% if not messages %}{{ raise_exception('a system message needs a message of the user') }}{% "
         "endif %}"
         "{% for m in messages %}{% if m.role != ('assistant' if loop.index0 % 2 else 'user') %}"
         "{{ raise_exception('after the system message, user and assistant take turns') }}{% endif %}{% endfor %}";
}

inline std::string llama2() {
  return turns() +
         "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content|trim + ' </s>' }}"
         "{% elif loop.first and system is defined %}"
         "{{ '<s>[INST] ' + ('<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m.content)|trim + ' [/INST]' }}"
         "{% else %}{{ '<s>[INST] ' + m.content|trim + ' [/INST]' }}{% endif %}{% endfor %}";
}

/// before, end: texts around a question. behind: text after an answer. answer: expression of an answer's text.
/// system_last: the system message is written before the last question, else before the first.
inline std::string mistral(std::string_view before, std::string_view end, std::string_view behind,
                           std::string_view answer, bool system_last) {
  return turns() + text("{{ '<s>' }}{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + ", answer, " + '</s>",
                        behind, "' }}{% else %}{{ '", before, "[INST] ' }}{% if loop.", system_last ? "last" : "first",
                        " and system is defined %}{{ system + '\\n\\n' }}{% endif %}{{ m.content + '", end,
                        "[/INST]' }}{% endif %}{% endfor %}");
}

/// <|role|>, the content, an end. check: in front; skip: messages that are left out; ask: whether an answer is asked
/// for.
inline std::string bars(std::string_view end, std::string_view check = {}, std::string_view skip = {},
                        std::string_view ask = "true") {
  return text(check, "{% for m in messages ", skip, " %}{{ '<|' + m.role + '|>\\n' + m.content + ", end,
              " + '\\n' }}{% endfor %}{% if add_generation_prompt and ", ask, " %}{{ '<|assistant|>\\n' }}{% endif %}");
}

struct Embedded {
  std::string_view name;
  std::string_view tokens;  // that the tokenizer must have, with blanks between
};

inline constexpr std::string_view chatml_tokens = "<|im_start|> <|im_end|>";
inline constexpr std::string_view llama3_tokens = "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>";
inline constexpr std::string_view phi_tokens = "<|user|> <|assistant|> <|end|>";

inline constexpr std::array<Embedded, 19> embedded{{
    {"plain", ""},
    {"amd-olmo", "<|endoftext|>"},
    {"llama-2", "<s> </s>"},
    {"llama-3", llama3_tokens},
    {"llama-3.1", llama3_tokens},
    {"llama-3.2", llama3_tokens},
    {"mistral-v0.1", "<s> </s>"},
    {"mistral-v0.2", "<s> </s>"},
    {"mistral-spaced", "<s> </s>"},
    {"mistral-v0.3", "<s> </s> [INST] [/INST]"},
    {"phi-3", phi_tokens},
    {"phi-3-vision", phi_tokens},
    {"phi-3.5", phi_tokens},
    {"zephyr", "</s>"},
    {"chatml", chatml_tokens},
    {"smollm-2", chatml_tokens},
    {"qwen-2", chatml_tokens},
    {"qwen-2.5", chatml_tokens},
    {"qwen-3", chatml_tokens},
}};

inline const Embedded* embedded_named(std::string_view name) {
  for (const Embedded& known : embedded) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

/// The source of a template that slm has.
inline std::string embedded_source(std::string_view name) {
  constexpr std::string_view olmo =
      "{% for m in messages if m.role == 'system' %}{{ raise_exception('the template has no place for a system "
      "message: "
      "put its text into the first message of the user') }}{% endfor %}{% if messages[-1].role != 'user' %}"
      "{{ raise_exception('the last message must be of the user') }}{% endif %}{{ '<|endoftext|>' }}";
  if (name == "amd-olmo") return bars("('<|endoftext|>' if m.role == 'assistant' else '')", olmo);
  if (name == "llama-2") return llama2();
  if (name == "llama-3") return llama3("");
  if (name == "llama-3.1") return llama3("date_string|default('26 Jul 2024')");
  if (name == "llama-3.2") return llama3("(date_string if date_string is defined else strftime_now('%d %b %Y'))");
  if (name == "mistral-v0.1") return mistral("", " ", " ", "m['content']", false);
  if (name == "mistral-v0.2") return mistral("", " ", "", "m['content']", false);
  if (name == "mistral-spaced") return mistral(" ", " ", "", "m['content']", false);
  if (name == "mistral-v0.3") return mistral("", "", "", "m['content']|trim", true);
  if (name == "phi-3") return bars("'<|end|>'");
  if (name == "phi-3-vision") return bars("'<|end|>'", {}, {}, "messages[-1].role != 'assistant'");
  if (name == "phi-3.5") return bars("'<|end|>'", {}, "if m.role != 'system' or m.content");
  if (name == "zephyr") return bars("'</s>'");
  if (name == "chatml") return chatml("");
  if (name == "smollm-2") return chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  if (name == "qwen-2") return chatml("You are a helpful assistant.");
  if (name == "qwen-2.5") return chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
  if (name == "qwen-3") return qwen3();
  return "{% for m in messages %}{{ m.content }}{% if not m.content.endswith('\\n') %}{{ '\\n' }}{% endif %}{% endfor "
         "%}";
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

/// The template that a squeezed name of a model suggests; empty: none.
inline std::string_view template_of_name(std::string_view name, std::string_view model_type) {
  struct Hint {
    std::string_view family, variant, model_type, found;
  };
  static constexpr Hint hints[]{
      {"olmo", "sft", "olmo", "amd-olmo"},
      {"olmo", "instruct", "olmo", "amd-olmo"},
      {"llama_2", "chat", "llama", "llama-2"},
      {"codellama", "instruct", "llama", "llama-2"},
      {"tinyllama", "chat", "llama", "zephyr"},
      {"llama_3_1_", "instruct", "llama", "llama-3.1"},
      {"llama_3_2_", "instruct", "llama", "llama-3.2"},
      {"llama_3_3_", "instruct", "llama", "llama-3.1"},
      {"llama_3_8b", "instruct", "llama", "llama-3"},
      {"llama_3_70b", "instruct", "llama", "llama-3"},
      {"smollm2", "instruct", "llama", "smollm-2"},
      {"mistral", "instruct_v0_1", "mistral", "mistral-v0.1"},
      {"mistral", "instruct_v0_2", "mistral", "mistral-v0.2"},
      {"mistral", "instruct_v0_3", "mistral", "mistral-v0.3"},
      {"phi_3_mini", "instruct", "phi3", "phi-3"},
      {"phi_3_5_mini", "instruct", "phi3", "phi-3.5"},
      {"qwen2_5", "instruct", "qwen2", "qwen-2.5"},
      {"qwen2", "instruct", "qwen2", "qwen-2"},
  };
  const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
  for (const Hint& hint : hints) {
    if (has(hint.family) && has(hint.variant) && (model_type.empty() || model_type == hint.model_type)) {
      return hint.found;
    }
  }
  if (!has("qwen3_") || (!model_type.empty() && model_type != "qwen3")) return {};
  for (const std::string_view other : {"base", "instruct", "thinking", "embed", "rerank", "coder", "guard"}) {
    if (has(other)) return {};
  }
  return "qwen-3";
}

}}}
