// ChatFormat: the format of a model's conversations, as selected by commands.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "slm/text/chat.hpp"

namespace cli {

struct ChatFormat {
  slm::chat::Template form = slm::chat::Template::plain;
  bool thinking = true;
  slm::chat::Stops stops = {};  // tokens and texts that end an answer

  /// The prompt for the next answer. Throws Error ("chat.…").
  std::vector<slm::Token> encode(const slm::Tokenizer& tokenizer, const std::vector<slm::chat::Message>& said) const {
    slm::chat::Options options{.thinking = thinking};
    if (form == slm::chat::Template::llama32) options.date = today();
    return slm::chat::encode(tokenizer, form, said, options);
  }

  /// The piece without the space that the template or tokenizer puts before an answer. begun: whether the answer has
  /// begun.
  std::string_view spoken(std::string_view piece, bool& begun) const {
    if (!begun && slm::chat::space_before_answer(form) && piece.starts_with(' ')) piece.remove_prefix(1);
    begun = true;
    return piece;
  }

  /// The stop tokens that a model with `vocab` ids has.
  std::vector<slm::Token> stop_tokens(int vocab) const {
    std::vector<slm::Token> tokens = stops.tokens;
    std::erase_if(tokens, [vocab](slm::Token token) { return token >= vocab; });
    return tokens;
  }

 private:
  static std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char date[32];
    std::strftime(date, sizeof date, "%d %b %Y", &local);
    return date;
  }
};

struct ChatOptions {
  std::string template_name;
  bool no_thinking = false;
};

/// The template named by the options, else that of the model's files. Throws Error ("chat.…").
inline slm::chat::Choice choose_template(const ChatOptions& options, const std::string& model) {
  return options.template_name.empty()
             ? slm::chat::choose(model)
             : slm::chat::Choice{.value = slm::chat::parse_template(options.template_name), .guessed = false};
}

/// The notice at start-up if the template was guessed.
inline std::string guess_notice(slm::chat::Template form) {
  return slm::text("The model has no chat template; ", slm::chat::name_of(form),
                   " is guessed from its name. Name another with --template.");
}

inline ChatFormat make_chat_format(slm::chat::Template form, const ChatOptions& options,
                                   const slm::Tokenizer& tokenizer) {
  return {.form = form, .thinking = !options.no_thinking, .stops = slm::chat::stops(tokenizer, form)};
}

}  // namespace cli
