// The functions of ChatFormat.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/chat/format.hpp"
#include "slm/core/error.hpp"
#include "slm/text/tokenizer.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Whether reasoning can be switched on and the model, not the template, begins it.
inline bool model_opens_reasoning(const ChatFormat& format) {
  if (!format.form.features().thinking_switch) return false;
  ChatOptions options;
  options.kwargs = R"({"enable_thinking": true})";
  const std::vector<ChatMessage> question{{"user", "x"}};
  try {
    return !format.answer.begins_in_reasoning(format.form.render(question, options));
  } catch (const Error&) {  // it wants other messages
    return false;
  }
}

}  // namespace detail

SLM_INLINE ChatFormat ChatFormat::of(ChatTemplate form, const Tokenizer& tokenizer, std::string kwargs) {
  ChatFormat format{.form = std::move(form), .kwargs = std::move(kwargs)};
  format.stops = format.form.stops(tokenizer);
  format.space = format.form.space_before_answer(tokenizer);
  format.answer = AnswerFormat::of(format.form);
  format.opens_reasoning = detail::model_opens_reasoning(format);
  for (const std::string& tag : format.answer.tags()) {
    const std::optional<Token> token = tokenizer.token(tag);
    if (token && tokenizer.is_special(*token)) format.tags.push_back(*token);
  }
  return format;
}

SLM_INLINE std::vector<Token> ChatFormat::encode(const Tokenizer& tokenizer,
                                                 const std::vector<ChatMessage>& messages) const {
  ChatOptions options;
  options.kwargs = kwargs;
  return form.encode(tokenizer, messages, options);
}

SLM_INLINE Reasoning ChatFormat::reasoning_after(const jinja::Rendered& prompt) const {
  const std::string_view end = answer.reasoning_end();
  if (end.empty()) return Reasoning::none;
  if (answer.begins_in_reasoning(prompt)) return Reasoning::begun;
  if (!opens_reasoning) return Reasoning::none;
  std::string_view text = prompt.text;
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  return text.ends_with(end) ? Reasoning::none : Reasoning::possible;
}

SLM_INLINE std::string_view ChatFormat::spoken(std::string_view piece, bool& begun) const {
  if (!begun && space && piece.starts_with(' ')) piece.remove_prefix(1);
  begun = true;
  return piece;
}

SLM_INLINE std::vector<Token> ChatFormat::stop_tokens(int vocab) const {
  std::vector<Token> tokens = stops.tokens;
  std::erase_if(tokens, [vocab](Token token) { return token >= vocab; });
  return tokens;
}

}}
