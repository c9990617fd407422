// Messages as a template sees them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/jinja/json_print.hpp"
#include "slm/text/jinja/json_value.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

using jinja::Kind;
using jinja::Value;

inline bool is_known_role(std::string_view role) {
  constexpr std::string_view known[]{"system", "developer", "user", "assistant", "tool"};
  return std::find(std::begin(known), std::end(known), role) != std::end(known);
}

/// A dict that is changed member by member.
class Members {
 public:
  Members(jinja::Heap& heap, const Value& dict) : heap_(heap), members_(dict.dict().items) {}

  const Value* find(std::string_view name) const {
    for (const auto& [key, value] : members_) {
      if (key.is_string() && key.bytes() == name) return &value;
    }
    return nullptr;
  }

  void set(std::string_view name, Value value) {
    for (auto& [key, member] : members_) {
      if (!key.is_string() || key.bytes() != name) continue;
      member = std::move(value);
      return;
    }
    members_.emplace_back(heap_.string(name), std::move(value));
  }

  void drop_nulls() {
    std::erase_if(members_, [](const auto& member) { return member.second.is_none(); });
  }

  Value take() {
    jinja::DictBuilder made(heap_);
    for (auto& [key, value] : members_) made.set(std::move(key), std::move(value));
    return made.take();
  }

 private:
  jinja::Heap& heap_;
  std::vector<std::pair<Value, Value>> members_;
};

/// Changes to messages that a template needs.
struct Adaptation {
  bool joins_parts = false;        // it takes no lists of parts
  bool no_developer = false;       // it does not know the role
  bool arguments_as_text = false;  // it takes them no other way
};

class Messages {
 public:
  explicit Messages(jinja::Heap& heap) : heap_(heap) {}

  /// One message without members that are null, with its reasoning under the names that templates use. A known role
  /// counts as written by the template.
  Value plain(const Value& given, std::size_t index) {
    if (!given.is(Kind::dict)) throw bad(index, "is no object", "Write each message as an object");
    Members message(heap_, given);
    message.drop_nulls();
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const Value* found = message.find(name);
      if (found == nullptr) continue;
      const Value reasoning = *found;
      message.set("reasoning_content", reasoning);
      if (message.find("thinking") == nullptr) message.set("thinking", reasoning);
      break;
    }
    const Value* role = message.find("role");
    if (role != nullptr && role->is_string() && is_known_role(role->bytes())) {
      message.set("role", heap_.string(role->bytes()));
    }
    return message.take();
  }

  /// A plain message as servers pass it on.
  Value adapted(const Value& given, std::size_t index, const Adaptation& adaptation) {
    Members message(heap_, given);
    const Value* role = message.find("role");
    if (role == nullptr || !role->is_string() || !is_known_role(role->bytes())) {
      throw Error("chat.unknown-role",
                  text("message ", index, " has the role ",
                       role != nullptr && role->is_string() ? quote(role->bytes()) : "none",
                       ", expected system, developer, user, assistant or tool"),
                  "Give each message one of these roles");
    }
    if (adaptation.no_developer && role->bytes() == "developer") message.set("role", heap_.string("system"));
    const Value* content = message.find("content");
    if (content == nullptr) {
      message.set("content", heap_.string(""));
    } else if (content->is(Kind::list) && adaptation.joins_parts) {
      message.set("content", joined(*content, index));
    }
    if (const Value* calls = message.find("tool_calls"); calls != nullptr && calls->is(Kind::list)) {
      std::vector<Value> all;
      for (const Value& call : calls->items()) all.push_back(adapted_call(call, index, adaptation));
      message.set("tool_calls", heap_.list(std::move(all)));
    }
    return message.take();
  }

  /// A message with a text behind its content.
  Value continued(const Value& given, std::string_view more) {
    Members message(heap_, given);
    const Value* content = message.find("content");
    if (content != nullptr && content->is_string()) {
      message.set("content", followed(*content, more));
      return message.take();
    }
    if (content != nullptr && content->is(Kind::list)) {
      std::vector<Value> parts = content->items();
      for (std::size_t i = parts.size(); i-- > 0;) {
        if (!parts[i].is(Kind::dict)) continue;
        Members part(heap_, parts[i]);
        const Value* words = part.find("text");
        if (words == nullptr || !words->is_string()) continue;
        part.set("text", followed(*words, more));
        parts[i] = part.take();
        message.set("content", heap_.list(std::move(parts)));
        return message.take();
      }
    }
    throw Error("chat.not-continued", "the last message has no text to continue", "End with a message that has a text");
  }

 private:
  static Error bad(std::size_t index, std::string_view fault, std::string_view advice) {
    return Error("chat.bad-message", text("message ", index, " ", fault), advice);
  }

  Value followed(const Value& words, std::string_view more) {
    jinja::Text longer = words.text();
    longer.append(more, jinja::Origin::given);
    return heap_.string(std::move(longer));
  }

  /// Texts as one, a line each.
  Value joined(const Value& parts, std::size_t index) {
    jinja::Text all;
    bool first = true;
    for (const Value& part : parts.items()) {
      jinja::Text one;
      if (part.is_string()) {
        one = part.text();
      } else if (part.is(Kind::dict)) {
        const Members members(heap_, part);
        const Value* words = members.find("text");
        if (words == nullptr || !words->is_string()) {
          throw bad(index, "has a part that is no text", "Send texts only, as this template takes no other content");
        }
        one = words->text();
      }
      if (!std::exchange(first, false)) all.append("\n", jinja::Origin::written);
      all.append(one);
    }
    return heap_.string(std::move(all));
  }

  Value adapted_call(const Value& given, std::size_t index, const Adaptation& adaptation) {
    if (!given.is(Kind::dict)) throw bad(index, "has a call that is no object", "Write each call as an object");
    Members call(heap_, given);
    const Value* function = call.find("function");
    if (function == nullptr || !function->is(Kind::dict)) return given;
    Members inner(heap_, *function);
    const Value* arguments = inner.find("arguments");
    if (arguments == nullptr) return given;
    const auto fault = [&](std::string_view what) {
      return Error("chat.bad-arguments", text("message ", index, " has a call whose `arguments` ", what),
                   "Send the arguments as a JSON object");
    };
    if (arguments->is_string() && !adaptation.arguments_as_text) {
      const std::string source{arguments->bytes().empty() ? "{}" : arguments->bytes()};
      Value parsed;
      try {
        parsed = jinja::parse_value(heap_, source, "arguments");
      } catch (const Error& error) {
        throw fault(text("are no JSON: ", error.what()));
      }
      if (!parsed.is(Kind::dict)) throw fault("are no object");
      inner.set("arguments", std::move(parsed));
    } else if (arguments->is(Kind::dict) && adaptation.arguments_as_text) {
      jinja::Text out;
      const jinja::JsonForm form;
      jinja::JsonPrinter(heap_, form, out).put(*arguments);
      inner.set("arguments", heap_.string(std::move(out)));
    } else {
      return given;
    }
    call.set("function", inner.take());
    return call.take();
  }

  jinja::Heap& heap_;
};

}}}
