// ChatFormat: how a model writes conversations.
#pragma once

#include "slm/core/implementation_order.inc"

#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/chat.hpp"

namespace slm { inline namespace v0_1 {

class Tokenizer;

/// How an answer begins.
enum class Reasoning {
  none,      // with its content
  begun,     // inside of the reasoning that the template has begun
  possible,  // with reasoning, if the model writes its tag
};

/// A template, and what it implies for the answers of a model with this tokenizer.
struct ChatFormat {
  ChatTemplate form;
  std::string kwargs = {};       // variables of the template
  ChatStops stops = {};          // what ends an answer
  bool space = false;            // an answer begins with a space that is no part of it
  bool opens_reasoning = false;  // the model may write the tag that begins reasoning
  AnswerFormat answer = {};      // how the model writes reasoning and calls
  std::vector<Token> tags = {};  // special tokens of that format

  static ChatFormat of(ChatTemplate form, const Tokenizer& tokenizer, std::string kwargs = {});

  /// The prompt that asks for the next answer. Throws Error ("chat.…").
  std::vector<Token> encode(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages) const;

  /// How an answer to the prompt begins.
  Reasoning reasoning_after(const jinja::Rendered& prompt) const;

  /// The piece without the space that the template or tokenizer puts before an answer. begun: whether the answer has
  /// begun.
  std::string_view spoken(std::string_view piece, bool& begun) const;

  /// The stop tokens that a model with `vocab` ids has.
  std::vector<Token> stop_tokens(int vocab) const;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_chat_format_hpp)
}}}

#if SLM_COMPILES
#include "slm/chat/format_functions.hpp"
#endif
