// The forms in which models write reasoning and calls of tools: one table.
#pragma once

#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The text between the tags of a call.
enum class CallBody {
  none,        // the model writes no calls
  json,        // {"name", "arguments"}, or a list of such objects
  named_json,  // a list of {NAME: arguments}
  mistral,     // NAME[ARGS]{arguments}, or a JSON list
  deepseek,    // NAME<sep>{arguments}, or function<sep>NAME and a fence
  kimi,        // functions.NAME:INDEX<|tool_call_argument_begin|>{arguments}
  parameters,  // one element for each argument
  pairs,       // NAME, then <arg_key> and <arg_value> elements
  python,      // f(a=1), or a list of such calls
  gemma,       // call:NAME{key:value}
  python_tag,  // JSON, NAME.call(a=1), or code
  harmony,     // messages with channels and recipients
};

/// A call that is the whole answer, without tags.
enum class BareCall { none, json, python };

/// The elements of CallBody::parameters: begin NAME name_end { begin KEY key_end VALUE end }.
struct ParameterTags {
  std::string_view name_end, begin, key_end, end;
  bool drops_newlines = false;  // one behind the opening tag and one before the closing tag
  bool flags_strings = false;   // key_end is followed by true"> for a raw text, by false"> for JSON
};

struct ReasoningTags {
  std::string_view open, close;
};

struct AnswerSyntax {
  std::string_view name;
  CallBody body = CallBody::none;
  std::string_view open = {}, begin = {}, end = {}, close = {};  // open { begin body end } close; begin is required
  std::string_view other_begin = {};                             // of older models
  std::string_view first_begin = {};                             // only at the beginning of an answer
  BareCall bare = BareCall::none;
  bool offered_only = false;  // an untagged form: the name must be one of the request's tools
  ParameterTags parameters = {};
  ReasoningTags reasoning = {"<think>", "</think>"};
  ReasoningTags response = {};            // tags around the text; they are left out
  bool response_after_reasoning = false;  // only then
};

inline constexpr ParameterTags qwen_parameters{">", "<parameter=", ">", "</parameter>", true};

inline constexpr AnswerSyntax answer_syntaxes[] = {
    {.name = "plain"},
    {.name = "hermes", .body = CallBody::json, .begin = "<tool_call>", .end = "</tool_call>"},
    {.name = "qwen3-coder",
     .body = CallBody::parameters,
     .open = "<tool_call>",
     .begin = "<function=",
     .end = "</function>",
     .close = "</tool_call>",
     .parameters = qwen_parameters},
    {.name = "seed-oss",
     .body = CallBody::parameters,
     .open = "<seed:tool_call>",
     .begin = "<function=",
     .end = "</function>",
     .close = "</seed:tool_call>",
     .parameters = qwen_parameters,
     .reasoning = {"<seed:think>", "</seed:think>"}},
    {.name = "minicpm",
     .body = CallBody::parameters,
     .begin = "<function name=\"",
     .end = "</function>",
     .parameters = {"\">", "<param name=\"", "\">", "</param>"}},
    {.name = "minimax",
     .body = CallBody::parameters,
     .open = "<minimax:tool_call>",
     .begin = "<invoke name=\"",
     .end = "</invoke>",
     .close = "</minimax:tool_call>",
     .parameters = {"\">", "<parameter name=\"", "\">", "</parameter>"}},
    {.name = "deepseek-v3.2",
     .body = CallBody::parameters,
     .open = "<｜DSML｜function_calls>",
     .begin = "<｜DSML｜invoke name=\"",
     .end = "</｜DSML｜invoke>",
     .close = "</｜DSML｜function_calls>",
     .parameters = {"\">", "<｜DSML｜parameter name=\"", "\" string=\"", "</｜DSML｜parameter>", false, true}},
    {.name = "deepseek",
     .body = CallBody::deepseek,
     .open = "<｜tool▁calls▁begin｜>",
     .begin = "<｜tool▁call▁begin｜>",
     .end = "<｜tool▁call▁end｜>",
     .close = "<｜tool▁calls▁end｜>"},
    {.name = "kimi-k2",
     .body = CallBody::kimi,
     .open = "<|tool_calls_section_begin|>",
     .begin = "<|tool_call_begin|>",
     .end = "<|tool_call_end|>",
     .close = "<|tool_calls_section_end|>"},
    {.name = "glm", .body = CallBody::pairs, .begin = "<tool_call>", .end = "</tool_call>"},
    {.name = "mistral", .body = CallBody::mistral, .begin = "[TOOL_CALLS]", .reasoning = {"[THINK]", "[/THINK]"}},
    {.name = "granite",
     .body = CallBody::json,
     .begin = "<|tool_call|>",
     .other_begin = "<tool_call>",
     .response = {"<response>", "</response>"},
     .response_after_reasoning = true},
    {.name = "phi4-mini",
     .body = CallBody::json,
     .begin = "<|tool_call|>",
     .end = "<|/tool_call|>",
     .first_begin = "functools"},
    {.name = "nemotron", .body = CallBody::json, .begin = "<TOOLCALL>", .end = "</TOOLCALL>"},
    {.name = "apriel",
     .body = CallBody::json,
     .begin = "<tool_calls>",
     .end = "</tool_calls>",
     .reasoning = {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"}},
    {.name = "apertus",
     .body = CallBody::named_json,
     .begin = "<|tools_prefix|>",
     .end = "<|tools_suffix|>",
     .reasoning = {"<|inner_prefix|>", "<|inner_suffix|>"}},
    {.name = "command-r", .body = CallBody::json, .begin = "Action: ```json", .end = "```"},
    {.name = "command-r7b",
     .body = CallBody::json,
     .begin = "<|START_ACTION|>",
     .end = "<|END_ACTION|>",
     .reasoning = {"<|START_THINKING|>", "<|END_THINKING|>"},
     .response = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    {.name = "llama3", .body = CallBody::python_tag, .begin = "<|python_tag|>", .bare = BareCall::json},
    {.name = "llama-python", .body = CallBody::python_tag, .begin = "<|python_tag|>", .bare = BareCall::python},
    {.name = "lfm2", .body = CallBody::python, .begin = "<|tool_call_start|>", .end = "<|tool_call_end|>"},
    {.name = "olmo3", .body = CallBody::python, .begin = "<function_calls>", .end = "</function_calls>"},
    {.name = "gemma3-tool-code", .body = CallBody::python, .begin = "```tool_code", .end = "```", .offered_only = true},
    {.name = "gemma3-json",
     .body = CallBody::json,
     .begin = "```json",
     .end = "```",
     .bare = BareCall::json,
     .offered_only = true},
    {.name = "gemma4",
     .body = CallBody::gemma,
     .begin = "<|tool_call>",
     .end = "<tool_call|>",
     .reasoning = {"<|channel>thought", "<channel|>"}},
    {.name = "gpt-oss", .body = CallBody::harmony, .begin = "<|channel|>", .reasoning = {}},
};

/// Null: there is no such format.
constexpr const AnswerSyntax* answer_syntax(std::string_view name) {
  for (const AnswerSyntax& syntax : answer_syntaxes) {
    if (syntax.name == name) return &syntax;
  }
  return nullptr;
}

}}}
