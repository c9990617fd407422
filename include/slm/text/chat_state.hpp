// The state that copies of a ChatTemplate share: compiled templates by name, and their features.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/chat_messages.hpp"
#include "slm/text/chat_sources.hpp"
#include "slm/text/chat_template.hpp"
#include "slm/text/jinja/template.hpp"

namespace slm { inline namespace v0_1 {

struct ChatTemplate::State {
  /// One template, or why it does not compile.
  struct Named {
    std::string name, source;
    std::optional<jinja::Template> compiled;
    std::optional<TemplateError> fault;
  };

  std::string name;
  bool guessed = false;
  const chat::Embedded* embedded = nullptr;  // it is one of slm's own
  std::vector<Named> templates;
  std::vector<ChatToken> tokens;

  mutable std::once_flag probed;
  mutable ChatFeatures features;

  void add(const std::string& what, const std::string& called, std::string source) {
    Named made{called, std::move(source), {}, {}};
    try {
      made.compiled.emplace(made.source, what);
    } catch (const TemplateError& error) {
      made.fault = error;
    }
    templates.push_back(std::move(made));
  }

  /// The template of a chat: `tool_use` for one with tools, where there are several.
  const Named& chosen(bool with_tools) const {
    if (templates.size() == 1) return templates.front();
    const auto named = [this](std::string_view wanted) -> const Named* {
      for (const Named& one : templates) {
        if (one.name == wanted) return &one;
      }
      return nullptr;
    };
    const Named* found = with_tools ? named("tool_use") : nullptr;
    if (found == nullptr) found = named("default");
    if (found != nullptr) return *found;
    std::string names;
    for (const Named& one : templates) names += text(names.empty() ? "" : ", ", quote(one.name));
    throw Error("chat.no-default", text("the model has several chat templates, none of them 'default': ", names),
                "Name one with --chat-template");
  }

  const jinja::Template& compiled(bool with_tools) const {
    const Named& found = chosen(with_tools);
    if (found.fault) throw *found.fault;
    return *found.compiled;
  }

  /// A rendering of plain messages, before it is cut.
  jinja::Text rendered(jinja::Heap& heap, const jinja::Value& messages, const ChatOptions& options) const {
    using jinja::Value;
    jinja::DictBuilder variables(heap);
    const auto set = [&](std::string_view called, Value value) {
      variables.set(heap.string(called), std::move(value));
    };
    const auto json = [&](std::string_view source, const char* what, jinja::Kind kind, const char* expected) {
      if (source.empty()) return Value::none();
      Value value = jinja::parse_value(heap, source, what);
      if (!value.is(kind) && !value.is_none()) {
        throw Error("chat.bad-options", text("'", what, "' of a chat are no ", expected),
                    text("Send them as a JSON ", expected));
      }
      return value;
    };
    for (const ChatToken& token : tokens) set(token.name, heap.string(token.text));
    set("messages", messages);
    const Value tools = json(options.tools, "tools", jinja::Kind::list, "list");
    const bool with_tools = tools.is(jinja::Kind::list) && !tools.items().empty();
    set("tools", options.as_given || with_tools ? tools : Value::none());
    set("documents", json(options.documents, "documents", jinja::Kind::list, "list"));
    set("add_generation_prompt", Value::boolean(options.add_generation_prompt && !options.continue_final_message));
    const Value more = json(options.kwargs, "kwargs", jinja::Kind::dict, "object");
    if (more.is(jinja::Kind::dict)) {
      for (const auto& [called, value] : more.dict().items) variables.set(called, value);
    }
    return compiled(with_tools).render_value(variables.take(), options.date);
  }

  /// Messages that nothing is done to but what templates rely on.
  static std::vector<jinja::Value> plain(jinja::Heap& heap, const jinja::Value& given) {
    if (!given.is(jinja::Kind::list))
      throw Error("chat.bad-message", "the messages are no list", "Write them as a JSON list");
    std::vector<jinja::Value> messages;
    chat::Messages made(heap);
    for (std::size_t i = 0; i < given.items().size(); ++i) messages.push_back(made.plain(given.items()[i], i));
    return messages;
  }

  void adapt(jinja::Heap& heap, std::vector<jinja::Value>& messages) const;
  void adapt_tools(jinja::Heap& heap, std::vector<jinja::Value>& messages, const ChatOptions& options) const;
  jinja::Text render(jinja::Heap& heap, const jinja::Value& given, const ChatOptions& options) const;
  const ChatFeatures& found() const;
};

}}
