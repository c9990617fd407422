// The functions of ChatTemplate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/os/path.hpp"
#include "slm/text/chat_features.hpp"
#include "slm/text/chat_state.hpp"
#include "slm/text/chat_template.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

namespace chat {

/// Behind the text of a message that is continued; the prompt ends before it.
inline constexpr std::string_view end_mark = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Cuts a rendering at the mark; without the white space before it where the template has trimmed the message.
inline void cut_at_mark(jinja::Text& rendered) {
  const std::string_view all = rendered.bytes();
  const std::size_t at = all.rfind(end_mark.substr(0, end_mark.size() - 1));
  if (at == all.npos) {
    throw Error("chat.not-continued", "the template does not write the last message's text",
                "Send it without continue_final_message");
  }
  const bool trimmed = !all.substr(at).starts_with(end_mark);
  rendered.resize(trimmed ? jinja::strip_blanks(all, 0, at) : at);
}

inline jinja::Rendered with_spans(const jinja::Text& text) {
  jinja::Rendered made{text.bytes(), {}};
  for (const jinja::Text::Run& run : text.runs()) made.spans.push_back({run.end, run.origin == jinja::Origin::written});
  return made;
}

inline jinja::Value message_of(jinja::Heap& heap, std::string_view role, std::string_view content) {
  jinja::DictBuilder made(heap);
  const auto sound = [&heap](std::string_view bytes) {
    std::string repaired;
    utf8::append_lossy(repaired, bytes);
    return heap.string(repaired, jinja::Origin::given);
  };
  made.set(heap.string("role"), sound(role));
  made.set(heap.string("content"), sound(content));
  return made.take();
}

inline bool has_role(jinja::Heap& heap, const jinja::Value& message, std::string_view role) {
  const jinja::Value* const found = jinja::find(heap, message, heap.string("role"));
  return found != nullptr && found->is_string() && found->bytes() == role;
}

inline Error unrecognised(const std::filesystem::path& model) {
  return Error("chat.unrecognised",
               text("'", model.string(), "' has no chat template, and none can be inferred from its name"),
               "Name one with --chat-template, plain for a model that was never taught to chat");
}

}  // namespace chat

SLM_INLINE std::string with_kwarg(std::string_view kwargs, std::string_view name, std::string_view value) {
  jinja::Heap heap;
  jinja::Value all = jinja::parse_value(heap, kwargs.empty() ? "{}" : kwargs, "kwargs");
  if (!all.is(jinja::Kind::dict)) {
    throw Error("chat.bad-options", "'kwargs' of a chat are no object", "Send them as a JSON object");
  }
  chat::Members members(heap, all);
  members.set(name, jinja::parse_value(heap, value, "kwargs"));
  jinja::Text out;
  const jinja::JsonForm form;
  jinja::JsonPrinter(heap, form, out).put(members.take());
  return out.bytes();
}

SLM_CONSTRUCTOR ChatTemplate::ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}

SLM_INLINE std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> names;
  for (const chat::Embedded& known : chat::embedded) names.emplace_back(known.name);
  return names;
}

SLM_INLINE ChatTemplate ChatTemplate::from(const std::filesystem::path& model, const std::string& choice) {
  chat::Sources sources;
  if (!model.empty()) sources = chat::sources_of(model);
  auto state = std::make_shared<State>();
  for (auto& [name, content] : sources.tokens) state->tokens.push_back({std::move(name), std::move(content)});
  const auto embed = [&](std::string_view name) {
    state->embedded = chat::embedded_named(name);
    state->add(text("chat template ", name), std::string{name}, chat::embedded_source(name));
  };
  const auto named = [&](std::string_view name) {
    return std::find_if(sources.templates.begin(), sources.templates.end(),
                        [name](const chat::Source& source) { return source.name == name; });
  };
  state->name = choice;
  if (choice.empty() && !sources.templates.empty()) {
    const bool alone = sources.templates.size() == 1;
    for (chat::Source& source : sources.templates) {
      const std::string what =
          alone ? "the model's chat template" : text("the model's chat template ", quote(source.name));
      state->add(what, source.name, std::move(source.text));
    }
    state->name = state->chosen(false).name;
  } else if (choice.empty()) {
    for (const std::string& name : sources.names) {
      if (state->templates.empty()) {
        if (const auto guess = chat::template_of_name(name, sources.model_type); !guess.empty()) {
          embed(guess);
          state->name = guess;
          state->guessed = true;
        }
      }
    }
    if (state->templates.empty()) throw chat::unrecognised(model);
  } else if (const auto own = named(choice); own != sources.templates.end()) {
    state->add(text("the model's chat template ", quote(choice)), choice, std::move(own->text));
  } else if (chat::embedded_named(choice) != nullptr) {
    embed(choice);
  } else if (const auto file = path_of(choice); file_exists(file)) {
    state->add(text("chat template ", file.filename().string()), choice, chat::template_file(file));
  } else {
    std::string known;
    for (const chat::Source& source : sources.templates) known += text(source.name, ", ");
    for (const std::string& name : names()) known += text(name, name == names().back() ? "" : ", ");
    throw Error("chat.unknown-template", text("there is no chat template and no file ", quote(choice)),
                text("Use a file, or one of: ", known));
  }
  state->compiled(false);
  return ChatTemplate(std::move(state));
}

SLM_INLINE ChatTemplate ChatTemplate::parse(std::string_view source, std::vector<ChatToken> tokens, std::string name) {
  auto state = std::make_shared<State>();
  state->name = name;
  state->tokens = std::move(tokens);
  state->add(name, "default", std::string{source});
  state->compiled(false);
  return ChatTemplate(std::move(state));
}

SLM_INLINE std::shared_ptr<ChatTemplate::State> ChatTemplate::copied() const {
  auto state = std::make_shared<State>();
  state->name = state_->name;
  state->guessed = state_->guessed;
  state->embedded = state_->embedded;
  state->templates = state_->templates;
  state->tokens = state_->tokens;
  return state;
}

SLM_INLINE ChatTemplate ChatTemplate::with_tools() const {
  if (features().tools == ChatSupport::yes || features().tools_in_system_message) return *this;
  auto state = copied();
  const bool has_system = features().system == ChatSupport::yes;
  const std::string source = chat::tools_as_text(has_system ? "system" : "user") + state->chosen(true).source;
  state->templates.clear();
  state->add(state->name, "default", source);
  state->compiled(true);
  return ChatTemplate(std::move(state));
}

SLM_INLINE ChatTemplate ChatTemplate::with_token(std::string name, std::string content) const {
  auto state = copied();
  std::erase_if(state->tokens, [&name](const ChatToken& token) { return token.name == name; });
  state->tokens.push_back({std::move(name), std::move(content)});
  return ChatTemplate(std::move(state));
}

/// Messages as the template wants them.
SLM_INLINE void ChatTemplate::State::adapt(jinja::Heap& heap, std::vector<jinja::Value>& messages) const {
  if (messages.empty()) {
    throw Error("chat.no-question", "the conversation has no messages, expected one or more", "Add what the user asks");
  }
  const auto any = [&](const char* member, auto&& holds) {
    return std::any_of(messages.begin(), messages.end(), [&](const jinja::Value& message) {
      const jinja::Value* found = jinja::find(heap, message, heap.string(member));
      return found != nullptr && holds(*found);
    });
  };
  chat::Adaptation adaptation;
  if (any("content", [](const jinja::Value& value) { return value.is(jinja::Kind::list); })) {
    adaptation.joins_parts = found().parts != ChatSupport::yes;
  }
  if (any("role", [](const jinja::Value& value) { return value.is_string() && value.bytes() == "developer"; })) {
    adaptation.no_developer = found().developer != ChatSupport::yes;
  }
  if (any("tool_calls", [](const jinja::Value&) { return true; })) {
    adaptation.arguments_as_text =
        found().arguments_as_object == ChatSupport::error && found().arguments_as_text == ChatSupport::yes;
  }
  chat::Messages made(heap);
  for (std::size_t i = 0; i < messages.size(); ++i) messages[i] = made.adapted(messages[i], i, adaptation);
}

/// Passes tools to a template that takes them as a member of the system message.
SLM_INLINE void ChatTemplate::State::adapt_tools(jinja::Heap& heap, std::vector<jinja::Value>& messages,
                                                 const ChatOptions& options) const {
  if (options.tools.empty() || options.tools == "[]" || options.tools == "null") return;
  if (found().tools != ChatSupport::no) return;
  if (found().tools_in_system_message) {
    if (!chat::has_role(heap, messages.front(), "system")) {
      messages.insert(messages.begin(), chat::message_of(heap, "system", ""));
    }
    chat::Members system(heap, messages.front());
    system.set("tools", heap.string(options.tools, jinja::Origin::given));
    messages.front() = system.take();
  } else {
    throw Error("chat.no-tools", "the chat template does not show tools to the model",
                "Send the request without tools");
  }
}

SLM_INLINE jinja::Text ChatTemplate::State::render(jinja::Heap& heap, const jinja::Value& given,
                                                   const ChatOptions& options) const {
  std::vector<jinja::Value> messages = plain(heap, given);
  if (!options.as_given) {
    adapt(heap, messages);
    adapt_tools(heap, messages, options);
  }
  if (options.continue_final_message) {
    if (messages.empty()) throw Error("chat.not-continued", "there is no message to continue", "Add one");
    messages.back() = chat::Messages(heap).continued(messages.back(), chat::end_mark);
  }
  jinja::Text rendered = this->rendered(heap, heap.list(std::move(messages)), options);
  if (options.continue_final_message) chat::cut_at_mark(rendered);
  return rendered;
}

SLM_INLINE const ChatFeatures& ChatTemplate::State::found() const {
  std::call_once(probed, [this] {
    // A separate template that does not count references: the state must not own itself.
    const std::shared_ptr<const State> self(std::shared_ptr<const State>(), this);
    features = chat::Probes(ChatTemplate(self)).run();
  });
  return features;
}

SLM_INLINE jinja::Rendered ChatTemplate::render(std::string_view messages, const ChatOptions& options) const {
  jinja::Heap heap;
  return chat::with_spans(state_->render(heap, jinja::parse_value(heap, messages, "messages"), options));
}

SLM_INLINE jinja::Rendered ChatTemplate::render(std::span<const ChatMessage> messages,
                                                const ChatOptions& options) const {
  jinja::Heap heap;
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    list.push_back(chat::message_of(heap, message.role, message.content));
  }
  return chat::with_spans(state_->render(heap, heap.list(std::move(list)), options));
}

SLM_INLINE std::vector<Token> ChatTemplate::encode(const Tokenizer& tokenizer, const jinja::Rendered& rendered) const {
  const std::string_view needed = state_->embedded != nullptr ? state_->embedded->tokens : std::string_view{};
  for (std::size_t begin = 0; begin < needed.size();) {
    const std::size_t end = std::min(needed.find(' ', begin), needed.size());
    const std::string_view name = needed.substr(begin, end - begin);
    begin = end + 1;
    const auto token = tokenizer.token(name);
    if (token && tokenizer.is_control(*token)) continue;
    throw Error("chat.missing-token",
                text("the template ", state_->name, " needs the token '", name, "', which this tokenizer lacks"),
                "Choose the template that the model was trained with, or plain");
  }
  std::vector<TextPart> parts;
  std::size_t begin = 0;
  for (const jinja::Rendered::Span& span : rendered.spans) {
    parts.push_back({std::string_view(rendered.text).substr(begin, span.end - begin), !span.written});
    begin = span.end;
  }
  return tokenizer.encode(parts, state_->embedded != nullptr && state_->embedded->name == "plain");
}

SLM_INLINE std::vector<Token> ChatTemplate::encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                                   const ChatOptions& options) const {
  return encode(tokenizer, render(messages, options));
}

SLM_INLINE const ChatFeatures& ChatTemplate::features() const { return state_->found(); }

SLM_INLINE ChatStops ChatTemplate::stops(const Tokenizer& tokenizer) const {
  ChatStops stops;
  const std::vector<ChatMessage> turns{{"user", "uq7z"}, {"assistant", "aq7z"}, {"user", "vq8z"}};
  ChatOptions options;
  options.add_generation_prompt = false;
  try {
    const std::string all = render(turns, options).text;
    const std::size_t answer = all.find("aq7z"), next = all.find("vq8z"), asked = all.find("uq7z");
    if (asked >= answer || answer >= next || next == all.npos) return stops;
    std::string_view between = std::string_view(all).substr(answer + 4, next - answer - 4);
    const std::string_view prompt = features().generation_prompt;
    const std::string_view header = std::string_view(all).substr(asked + 4, answer - asked - 4);
    // The end of an answer with several parts is the end of the last part, which only the model's files name.
    const std::size_t begun = prompt.empty() ? header.npos : header.find(prompt);
    const auto control = [&](std::string_view where) {
      for (const Token token : tokenizer.encode(where, false)) {
        if (tokenizer.is_special(token)) return std::optional(token);
      }
      return std::optional<Token>();
    };
    if (begun != header.npos && control(header.substr(begun + prompt.size()))) return stops;
    if (const auto token = control(between)) {
      stops.tokens.push_back(*token);
      return stops;
    }
    const std::size_t first = jinja::skip_blanks(between, 0),
                      last = jinja::strip_blanks(between, first, between.size());
    if (last > first && state_->name != "plain") stops.strings.emplace_back(between.substr(first, last - first));
  } catch (const Error&) {  // it has no such turns
  }
  return stops;
}

SLM_INLINE bool ChatTemplate::space_before_answer(const Tokenizer& tokenizer) const {
  const std::vector<ChatMessage> question{{"user", "uq7z"}}, answered{{"user", "uq7z"}, {"assistant", "Yes"}};
  ChatOptions options;
  try {
    const std::vector<Token> prompt = encode(tokenizer, question, options);
    options.add_generation_prompt = false;
    const std::vector<Token> whole = encode(tokenizer, answered, options);
    if (whole.size() <= prompt.size() || !std::equal(prompt.begin(), prompt.end(), whole.begin())) return false;
    return tokenizer.bytes(whole[prompt.size()]).starts_with(' ');
  } catch (const Error&) {
    return false;
  }
}

SLM_INLINE const std::string& ChatTemplate::name() const { return state_->name; }
SLM_INLINE bool ChatTemplate::is_guessed() const { return state_->guessed; }
SLM_INLINE const std::string& ChatTemplate::source(bool with_tools) const { return state_->chosen(with_tools).source; }

}}
