// Finds the form of a model's answers: renders conversations with a call, with tools and with reasoning, and looks for
// the tags that the forms begin with.
#pragma once

#include <string>
#include <string_view>

#include "slm/core/error.hpp"
#include "slm/text/answer/syntax.hpp"
#include "slm/text/chat.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class FormatProbes {
 public:
  explicit FormatProbes(const ChatTemplate& form) : form_(form), call_(form.features().call_text) {
    const ChatFeatures& found = form.features();
    if (!call_.empty()) return;
    if (found.tools != ChatSupport::yes && !found.tools_in_system_message) return;
    // Some templates leave out calls of the past: the instructions for tools show the form.
    ChatOptions options;
    options.tools = R"([{"type": "function", "function": {"name": "fq7z", "description": "dq8z", "parameters":
      {"type": "object", "properties": {"kq7z": {"type": "string"}}}}}])";
    shown_ = rendered(R"([{"role": "user", "content": "uq7z"}])", options, false);
  }

  /// The name of the form.
  std::string_view syntax() const {
    struct Sign {
      std::string_view word, name;
    };
    constexpr Sign signs[]{{"to=functions.", "gpt-oss"},
                           {"<|tool_call>call:", "gemma4"},
                           {"<|tool_call_start|>", "lfm2"},
                           {"<｜DSML｜", "deepseek-v3.2"},
                           {"<｜tool▁call▁begin｜>", "deepseek"},
                           {"<|tool_calls_section_begin|>", "kimi-k2"},
                           {"[TOOL_CALLS]", "mistral"},
                           {"<arg_key>", "glm"},
                           {"<seed:tool_call>", "seed-oss"},
                           {"<minimax:tool_call>", "minimax"},
                           {"<function=", "qwen3-coder"},
                           {"<function name=\"", "minicpm"},
                           {"<|START_ACTION|>", "command-r7b"},
                           {"Action: ```json", "command-r"},
                           {"<|tools_prefix|>", "apertus"},
                           {"<tool_calls>[", "apriel"},
                           {"<TOOLCALL>", "nemotron"},
                           {"<|/tool_call|>", "phi4-mini"},
                           {"<|/tool|>", "phi4-mini"},
                           {"<|tool_call|>", "granite"},
                           {"<function_calls>", "olmo3"},
                           {"<tool_call>", "hermes"},
                           {"```tool_code", "gemma3-tool-code"},
                           {"[fq7z(", "llama-python"},
                           {"<|python_tag|>", "llama3"},
                           {"\"parameters\": {\"kq7z\"", "llama3"},
                           {"{\"name\": \"fq7z\"", "llama3"}};
    for (const Sign& sign : signs) {
      const bool is_shown = sign.word.starts_with('<') && shown_.find(sign.word) != shown_.npos;
      if (is_shown || call_.find(sign.word) != call_.npos) return sign.name;
    }
    // A template that shows tools without a form of calls leaves it to the model.
    return shown_.empty() ? "plain" : "hermes";
  }

  /// The tags around the reasoning, if other tags than those of the form are found.
  ReasoningTags reasoning(const AnswerSyntax& syntax) const {
    if (syntax.body == CallBody::harmony) return syntax.reasoning;
    ChatOptions options;
    options.kwargs = R"({"enable_thinking": true})";
    std::string texts = form_.features().generation_prompt;
    texts += rendered(R"([{"role": "user", "content": "uq7z"}])", options);
    texts += rendered(R"([{"role": "user", "content": "uq7z"}, {"role": "assistant", "content": "aq7z",
      "reasoning_content": "hq7z"}])",
                      options);
    const auto has = [&texts](const ReasoningTags& tags) { return texts.find(tags.open) != texts.npos; };
    if (has(syntax.reasoning)) return syntax.reasoning;
    for (const AnswerSyntax& other : answer_syntaxes) {
      if (!other.reasoning.open.empty() && has(other.reasoning)) return other.reasoning;
    }
    return syntax.reasoning;
  }

 private:
  std::string rendered(std::string_view messages, ChatOptions options, bool as_given = true) const {
    options.as_given = as_given;
    try {
      return form_.render(messages, options).text;
    } catch (const Error&) {
      return {};
    }
  }

  const ChatTemplate& form_;
  std::string call_, shown_;
};

}}}
