// ChatBody: the body of a chat request, written from a request of another API.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/text_request.hpp"

namespace serve {

/// A chat that asks for the same answer.
struct ChatBody {
  OrderedJson fields = OrderedJson::object();
  std::vector<std::string> ignored = {};  // fields that the route does not know

  /// Copies the fields of a body except some, which the caller converts. The other fields mean the same in a chat.
  void copy(const slm::Json& body, const Fields& from, std::initializer_list<std::string_view> except);
};

/// Names of a chat's fields in another API.
using FieldNames = std::span<const std::pair<std::string_view, std::string_view>>;

/// The request of a chat; refusals have the other API's names of fields. Throws Refusal.
TextRequest read_chat_body(ChatBody chat, const ServedModel& model, const ReadingOptions& options, FieldNames names);
/// The number of tokens in its prompt. Throws Refusal.
std::size_t count_prompt(const ChatBody& chat, const ServedModel& model, FieldNames names);

/// Calls visit(value, source) for the values of a list, with their JSON text.
template <class Visit>
void each_item(const slm::Json& list, std::string_view source, Visit&& visit) {
  std::size_t i = 0;
  JsonSource(source).each_item([&](std::string_view item) { visit(list[i++], item); });
}

/// A function as chats describe it. parameters: a JSON schema, or empty.
OrderedJson function_tool(const slm::Json& described, std::string_view parameters);

/// A message of the assistant, from its parts in other APIs.
class AssistantMessage {
 public:
  void say(const std::string& text) { parts_.push_back({{"type", "text"}, {"text", text}}); }
  void think(const std::string& text) { reasoning_ += text; }
  void call(OrderedJson id, OrderedJson name, std::string arguments) {
    calls_.push_back({{"id", std::move(id)},
                      {"type", "function"},
                      {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
  }

  bool empty() const { return parts_.empty() && reasoning_.empty() && calls_.empty(); }
  bool calls() const { return !calls_.empty(); }

  OrderedJson json() const {
    OrderedJson message{{"role", "assistant"}, {"content", parts_.empty() ? OrderedJson("") : parts_}};
    if (parts_.size() == 1) message["content"] = parts_[0]["text"];
    if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
    if (!calls_.empty()) message["tool_calls"] = calls_;
    return message;
  }

 private:
  OrderedJson parts_ = OrderedJson::array(), calls_ = OrderedJson::array();
  std::string reasoning_;
};

}  // namespace serve
