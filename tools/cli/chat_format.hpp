// ChatFormat: the format of a model's conversations, as selected by commands.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/chat.hpp"
#include "slm/text/tokenizer.hpp"

namespace cli {

struct ChatOptions {
  std::string template_choice;  // a file or a name
  std::string kwargs;           // a JSON object of variables
  bool no_thinking = false;
};

struct ChatFormat {
  slm::ChatTemplate form;
  std::string kwargs = {};            // variables of the template
  slm::ChatStops stops = {};          // what ends an answer
  bool space = false;                 // an answer begins with a space that is no part of it
  bool opens_reasoning = false;       // the model may write the tag that begins reasoning
  slm::AnswerFormat answer = {};      // how the model writes reasoning and calls
  std::vector<slm::Token> tags = {};  // special tokens of that format

  /// The prompt that asks for the next answer. Throws Error ("chat.…").
  std::vector<slm::Token> encode(const slm::Tokenizer& tokenizer, const std::vector<slm::ChatMessage>& said) const {
    slm::ChatOptions options;
    options.kwargs = kwargs;
    return form.encode(tokenizer, said, options);
  }

  /// The piece without the space that the template or tokenizer puts before an answer. begun: whether the answer has
  /// begun.
  std::string_view spoken(std::string_view piece, bool& begun) const {
    if (!begun && space && piece.starts_with(' ')) piece.remove_prefix(1);
    begun = true;
    return piece;
  }

  /// The stop tokens that a model with `vocab` ids has.
  std::vector<slm::Token> stop_tokens(int vocab) const {
    std::vector<slm::Token> tokens = stops.tokens;
    std::erase_if(tokens, [vocab](slm::Token token) { return token >= vocab; });
    return tokens;
  }
};

/// The template that the options name, else the model's own. Throws Error ("chat.…").
inline slm::ChatTemplate choose_template(const ChatOptions& options, const std::string& model) {
  return slm::ChatTemplate::from(model, options.template_choice);
}

/// The notice that a program prints at its start when it guessed the template.
inline std::string guess_notice(const slm::ChatTemplate& form) {
  return slm::text("The model has no chat template; ", form.name(),
                   " is guessed from its name. Name another with --chat-template.");
}

/// Whether reasoning can be switched on and the model, not the template, begins it.
inline bool model_opens_reasoning(const ChatFormat& format) {
  if (!format.form.features().thinking_switch) return false;
  slm::ChatOptions options;
  options.kwargs = R"({"enable_thinking": true})";
  const std::vector<slm::ChatMessage> question{{"user", "x"}};
  try {
    return !format.answer.begins_in_reasoning(format.form.render(question, options));
  } catch (const slm::Error&) {  // it wants other messages
    return false;
  }
}

inline ChatFormat make_chat_format(slm::ChatTemplate form, const ChatOptions& options,
                                   const slm::Tokenizer& tokenizer) {
  ChatFormat format{.form = std::move(form), .kwargs = options.kwargs};
  if (options.no_thinking) format.kwargs = slm::with_kwarg(options.kwargs, "enable_thinking", "false");
  format.stops = format.form.stops(tokenizer);
  format.space = format.form.space_before_answer(tokenizer);
  format.answer = slm::AnswerFormat::of(format.form);
  format.opens_reasoning = model_opens_reasoning(format);
  for (const std::string& tag : format.answer.tags()) {
    const std::optional<slm::Token> token = tokenizer.token(tag);
    if (token && tokenizer.is_special(*token)) format.tags.push_back(*token);
  }
  return format;
}

}  // namespace cli
