// The format of a model's conversations, as selected by commands.
#pragma once

#include <string>
#include <utility>

#include "slm/chat/format.hpp"
#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/text/tokenizer.hpp"

namespace cli {

struct ChatOptions {
  std::string template_choice;  // a file or a name
  std::string kwargs;           // a JSON object of variables
  bool no_thinking = false;
  bool tools_as_text = false;  // see slm::ChatTemplate::with_tools
};

using slm::ChatFormat;

/// The template that the options name, else the model's own. Throws Error ("chat.…").
inline slm::ChatTemplate choose_template(const ChatOptions& options, const std::string& model) {
  const slm::ChatTemplate form = slm::ChatTemplate::from(slm::path_of(model), options.template_choice);
  return options.tools_as_text ? form.with_tools() : form;
}

/// The notice that a program prints at its start when it guessed the template.
inline std::string guess_notice(const slm::ChatTemplate& form) {
  return slm::text("The model has no chat template; ", form.name(),
                   " is guessed from its name. Name another with --chat-template.");
}

inline ChatFormat make_chat_format(slm::ChatTemplate form, const ChatOptions& options,
                                   const slm::Tokenizer& tokenizer) {
  std::string kwargs = options.kwargs;
  if (options.no_thinking) kwargs = slm::with_kwarg(kwargs, "enable_thinking", "false");
  return ChatFormat::of(std::move(form), tokenizer, std::move(kwargs));
}

}  // namespace cli
