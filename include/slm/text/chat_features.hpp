// Finds what a template can do: renders conversations that probe it, and looks for their words in the output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "slm/text/chat_state.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

class Probes {
 public:
  using Render = jinja::Rendered (*)(const ChatTemplate&, std::string_view, const ChatOptions&);

  explicit Probes(const ChatTemplate& asked) : template_(asked) {}

  ChatFeatures run() {
    ChatFeatures found;
    const std::string user = said("user", "uq7z"), answer = said("assistant", "aq7z"), last = said("user", "vq8z");
    const std::string system = said("system", "sq7z");
    found.system = has("sq7z", list(system, user));
    found.later_system = has("sq7z", list(user, answer, system, last));
    found.developer = has("dq7z", list(said("developer", "dq7z"), user));
    found.parts = same(list(user), list(R"({"role": "user", "content": [{"type": "text", "text": "uq7z"}]})"));

    found.tools = has("fq7z", list(user), tools);
    if (found.tools == ChatSupport::no) {
      const std::string with_tools = R"({"role": "system", "content": "", "tools": "fq7z"})";
      found.tools_in_system_message = has("fq7z", list(with_tools, user)) == ChatSupport::yes;
    }
    const std::string object = R"({"kq7z": "vq7z"})", text_of_object = R"("{\"kq7z\": \"vq7z\"}")";
    const std::string one = call(object),
                      result = R"({"role": "tool", "tool_call_id": "abcdefgh1", "name": "fq7z", "content": "rq7z"})";
    found.tool_calls = has("fq7z", list(user, calls(one), result));
    found.arguments_as_object = has("vq7z", list(user, calls(one), result));
    const std::string texts = list(user, calls(call(text_of_object)), result);
    found.arguments_as_text = has("vq7z", texts);
    found.quotes_arguments = found.arguments_as_text == ChatSupport::yes &&
                             output(texts).value_or("").find(R"(\"vq7z)") != std::string::npos;
    const std::string second = R"({"role": "tool", "tool_call_id": "abcdefgh2", "name": "gq7z", "content": "rq8z"})";
    found.parallel_calls =
        has("gq7z", list(user, calls(one + ", " + call(object, "gq7z", "abcdefgh2")), result, second));
    const std::string beside = list(user, calls(one, "tq7z"), result);
    found.text_beside_call = found.tool_calls == ChatSupport::yes ? has("tq7z", beside) : found.tool_calls;
    found.call_without_content =
        has("fq7z", list(user, R"({"role": "assistant", "tool_calls": [)" + one + "]}", result));
    found.tool_results = has("rq7z", list(user, calls(one), result));
    ChatOptions documents;
    documents.documents = R"([{"title": "nq7z", "text": "oq7z"}])";
    found.documents = has("oq7z", list(user), documents);

    const std::string thought = R"({"role": "assistant", "content": "aq7z", "reasoning_content": "hq7z"})";
    found.earlier_reasoning = has("hq7z", list(user, thought, last));
    const std::string thought_call =
        text(R"({"role": "assistant", "content": "", "reasoning_content": "hq7z", "tool_calls": [)", one, "]}");
    found.last_reasoning = has("hq7z", list(user, thought_call, result));
    find_prompt(found, list(user));
    find_call(found, list(user), list(user, calls(one)));
    return found;
  }

 private:
  static std::string said(std::string_view role, std::string_view content) {
    return text(R"({"role": ")", role, R"(", "content": ")", content, R"("})");
  }
  template <class... Parts>
  static std::string list(const Parts&... parts) {
    std::string all;
    ((all += text(all.empty() ? "" : ", ", parts)), ...);
    return "[" + all + "]";
  }
  static std::string call(std::string_view arguments, std::string_view name = "fq7z",
                          std::string_view id = "abcdefgh1") {
    return text(R"({"id": ")", id, R"(", "type": "function", "function": {"name": ")", name, R"(", "arguments": )",
                arguments, "}}");
  }
  static std::string calls(std::string_view all, std::string_view content = "") {
    return text(R"({"role": "assistant", "content": ")", content, R"(", "tool_calls": [)", all, "]}");
  }

  /// The rendering, or nothing where the template fails. A template that exceeds its limits is not rendered again.
  std::optional<std::string> output(std::string_view messages, ChatOptions options = {}) const {
    if (is_endless_) return std::nullopt;
    options.as_given = true;
    options.date = jinja::Date{2024, 1, 2, 3, 4, 5};
    try {
      return template_.render(messages, options).text;
    } catch (const TemplateError& error) {
      is_endless_ = error.kind() == TemplateError::Kind::limit;
      return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  ChatSupport has(std::string_view word, std::string_view messages, const ChatOptions& options = {}) const {
    const auto found = output(messages, options);
    if (!found) return ChatSupport::error;
    return found->find(word) != std::string::npos ? ChatSupport::yes : ChatSupport::no;
  }

  ChatSupport same(std::string_view a, std::string_view b) const {
    const auto first = output(a), second = output(b);
    if (!second) return ChatSupport::error;
    return first == second ? ChatSupport::yes : ChatSupport::no;
  }

  /// The text that `longer` adds after `shorter`; empty if it does not begin with `shorter`.
  static std::string added(const std::optional<std::string>& shorter, const std::optional<std::string>& longer) {
    return shorter && longer && longer->starts_with(*shorter) ? longer->substr(shorter->size()) : std::string{};
  }

  void find_prompt(ChatFeatures& found, std::string_view messages) const {
    const auto asking = output(messages);
    ChatOptions options;
    options.add_generation_prompt = false;
    found.generation_prompt = added(output(messages, options), asking);
    if (found.generation_prompt.empty()) {  // some end a text that asks for nothing by eos_token
      options.kwargs = R"({"eos_token": ""})";
      found.generation_prompt = added(output(messages, options), output(messages, kwargs(options.kwargs)));
    }
    const std::string_view begun = found.generation_prompt;
    found.thinking_switch = output(messages, kwargs(R"({"enable_thinking": true})")) !=
                            output(messages, kwargs(R"({"enable_thinking": false})"));
    const std::size_t think = begun.rfind("<think>"), end = begun.rfind("</think>");
    found.opens_thinking = think != begun.npos && (end == begun.npos || end < think);
  }

  static ChatOptions kwargs(std::string_view variables) {
    ChatOptions options;
    options.kwargs = variables;
    return options;
  }

  void find_call(ChatFeatures& found, std::string_view before, std::string_view with_call) const {
    if (found.arguments_as_object != ChatSupport::yes) return;
    ChatOptions options;
    options.add_generation_prompt = false;
    found.call_text = added(output(before, options), output(with_call, options));
  }

  static inline const ChatOptions tools = [] {
    ChatOptions options;
    options.tools = R"([{"type": "function", "function": {"name": "fq7z", "description": "dq8z",
      "parameters": {"type": "object", "properties": {"kq7z": {"type": "string", "description": "pq7z"}},
      "required": ["kq7z"]}}}])";
    return options;
  }();

  const ChatTemplate& template_;
  mutable bool is_endless_ = false;
};

}}}
