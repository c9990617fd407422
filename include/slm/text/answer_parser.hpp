// AnswerParser: reads reasoning and calls of tools in a model's answer, whole or while it is generated.
#pragma once

#include "slm/core/implementation_order.inc"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/text/answer/parts.hpp"
#include "slm/text/jinja/template.hpp"

namespace slm { inline namespace v0_1 {

class ChatTemplate;

namespace detail {
struct AnswerSyntax;
class AnswerParserState;
}

/// The form in which a model writes its answers. Cheap to copy.
class AnswerFormat {
 public:
  /// Text without calls; reasoning between `<think>` tags.
  AnswerFormat();

  /// Found by rendering test conversations.
  static AnswerFormat of(const ChatTemplate& form);

  /// One of names(). Throws Error ("chat.unknown-format").
  static AnswerFormat named(std::string_view name);
  static std::vector<std::string> names();

  std::string_view name() const;
  bool has_calls() const;

  /// The tags around reasoning; empty: the form has none.
  std::string_view reasoning_begin() const { return reasoning_open_; }
  std::string_view reasoning_end() const { return reasoning_close_; }

  /// The tags of the form. Where they are special tokens, the text for the parser must contain them.
  std::vector<std::string> tags() const;

  /// Whether the prompt ends inside reasoning that the template has begun.
  bool begins_in_reasoning(const jinja::Rendered& prompt) const;

 private:
  friend class AnswerParser;

  const detail::AnswerSyntax* syntax_;
  std::string_view reasoning_open_, reasoning_close_;
};

/// The inputs of a parser besides the text.
struct AnswerOptions {
  std::string_view tools{};          // a JSON list in OpenAI's form; read by the constructor
  bool reads_calls = true;           // false: calls are content
  bool begins_in_reasoning = false;  // see AnswerFormat
};

/// Takes an answer in pieces. The parts, joined, do not depend on the pieces. Text is held back while it may be a part
/// of a tag or of a call. A call is returned when it is complete; text that is no valid call is content.
class AnswerParser {
 public:
  /// Throws Error ("json.…", "chat.bad-options").
  explicit AnswerParser(const AnswerFormat& format, const AnswerOptions& options = {});
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;
  ~AnswerParser();

  /// The parts that the piece completes.
  std::vector<AnswerPart> push(std::string_view piece);
  /// The remaining parts; called once, after the last piece.
  std::vector<AnswerPart> finish();

 private:
  std::unique_ptr<detail::AnswerParserState> state_;
};

/// A whole answer.
struct ParsedAnswer {
  std::string content, reasoning;
  std::vector<ToolCall> calls;

  void add(AnswerPart part);
};

/// Throws Error ("json.…", "chat.bad-options").
ParsedAnswer parse_answer(std::string_view text, const AnswerFormat& format, const AnswerOptions& options = {});

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_text_answer_parser_hpp)
}}}

#if SLM_COMPILES
#include "slm/text/answer/parser_functions.hpp"
#endif
