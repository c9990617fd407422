// The API over a fake engine, and a template with tools, calls and reasoning.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "serve/api/fake_service.hpp"

namespace serve::test {

inline constexpr const char* chat_path = "/v1/chat/completions";
inline constexpr const char* weather_tool =
    R"({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": )"
    R"({"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}})";
inline constexpr const char* now_tool = R"({"type": "function", "function": {"name": "now"}})";

/// The demo pair's tokenizer with a template that writes tools, calls and reasoning as Qwen's do.
inline ServedModel calling_model(const std::string& prompt_end = "") {
  ServedModel model = demo_model();
  model.info.context = 4096;
  const slm::ChatTemplate form = slm::ChatTemplate::parse(
      R"({% if tools %}<tools>{{ tools|tojson }}</tools>
{% endif %}{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}{{ '\n' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments|tojson }}}
</tool_call>{% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant: )" +
      prompt_end + "{% endif %}");
  model.chat = cli::make_chat_format(form, {}, model.tokenizer);
  return model;
}

struct CallingServer {
  explicit CallingServer(const std::string& prompt_end = "") : model(calling_model(prompt_end)) {
    auto fake = std::make_unique<FakeService>();
    service = fake.get();
    api = std::make_unique<Api>(LoadedModel{model, std::move(fake)}, ApiOptions{});
  }

  std::unique_ptr<Exchange> begin(const std::string& members) {
    const std::string body =
        members.starts_with('{') ? members : R"({"messages": [{"role": "user", "content": "x"}], )" + members + "}";
    return api->handle({.method = "POST",
                        .path = path,
                        .query = {},
                        .content_type = "application/json",
                        .authorization = {},
                        .id = "1",
                        .body = body},
                       [] {});
  }

  /// The prompt of a request, a whole object without its braces.
  std::string prompt(const std::string& members) {
    service->asked.clear();
    const auto exchange = begin("{" + members + "}");
    REQUIRE(service->asked.size() == 1);
    return model.tokenizer.decode(service->asked.back().request.prompt, false);
  }

  /// The answer to a request, whose text the model writes token by token, or in one step.
  FakeOutput answer(const std::string& members, const std::string& text, bool by_token = false,
                    slm::FinishReason reason = slm::FinishReason::end_token) {
    const auto exchange = begin(members);
    FakeOutput out;
    if (service->asked.empty()) {
      exchange->poll(out);
      return out;
    }
    auto asked = service->asked.back();
    service->asked.clear();
    for (const slm::Token token : model.tokenizer.encode(text, false)) {
      asked.say(token);
      if (by_token) exchange->poll(out);
    }
    asked.end(reason);
    exchange->poll(out);
    return out;
  }

  slm::Json message(const std::string& members, const std::string& text) {
    return answer(members, text).json()["choices"][0]["message"];
  }

  std::string refused(const std::string& members) {
    const FakeOutput out = answer(members, "");
    if (out.status != 400) return "nothing";
    return out.json()["error"]["param"];
  }

  ServedModel model;
  FakeService* service;
  std::unique_ptr<Api> api;
  std::string path = chat_path;
};

inline std::string two_tools(const std::string& more = "") {
  return std::string(R"("tools": [)") + weather_tool + ", " + now_tool + "]" + more;
}

inline std::string call_text(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

}  // namespace serve::test
