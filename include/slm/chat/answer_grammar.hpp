// Grammars of answers: calls in a model's own form, and texts behind reasoning.
#pragma once

#include "slm/core/implementation_order.inc"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "slm/chat/format.hpp"
#include "slm/core/macros.hpp"
#include "slm/grammar/grammar.hpp"
#include "slm/grammar/token_trie.hpp"

namespace slm { inline namespace v0_1 {

/// A tool as far as a call needs it.
struct CallSignature {
  std::string name;
  std::string parameters = {};  // the JSON schema of the arguments, which are an object; empty: no arguments
};

/// How a model writes a call, as far as a grammar needs it: head NAME middle ARGUMENTS tail, with arguments as a JSON
/// object.
class CallForm {
 public:
  /// Found in the template's own rendering of a call. Nothing: arguments are not JSON, or the template shows no call.
  static std::optional<CallForm> of(const ChatTemplate& form, const AnswerFormat& answer);

  /// The text of a call of this tool up to its arguments.
  std::string before_arguments(std::string_view name) const;

  /// One call of one of the tools. Throws Error ("grammar.…", "json.…").
  Grammar call(std::span<const CallSignature> tools) const;

  /// The tag that only calls begin with; empty: the form has none, or one for a list of calls.
  const std::string& opening() const { return opening_; }
  /// A call without its opening tag. A schema that the grammar does not support permits any object.
  Grammar call_behind_opening(std::span<const CallSignature> tools) const;

 private:
  Grammar call_of(std::string_view name, std::string_view schema, std::size_t skipped) const;

  std::string opening_, head_, middle_, tail_;
};

/// The grammar of an answer whose content is of the given one, with reasoning in front of it. reasoning: begun or
/// possible.
Grammar behind_reasoning(const Grammar& content, const AnswerFormat& format, Reasoning reasoning);

/// The tokens of a constraint in which these special tokens are text.
TokenTrie tokens_with_tags(const Tokenizer& tokenizer, std::span<const Token> tags);

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_chat_answer_grammar_hpp)
}}}

#if SLM_COMPILES
#include "slm/chat/answer_grammar_functions.hpp"
#endif
