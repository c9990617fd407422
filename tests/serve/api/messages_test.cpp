// Anthropic's /v1/messages: requests as chats, answers and events.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "serve/api/reply_oracle.hpp"

using serve::test::call_text;
using serve::test::CallingServer;
using serve::test::FakeOutput;
using serve::test::Matching;
using slm::Json;

namespace {

constexpr const char* two_tools = R"(, "tools": [{"name": "get_weather", "description": "Weather.", "input_schema": )"
                                  R"({"type": "object", "properties": {"city": {"type": "string"}}}}, )"
                                  R"({"name": "now", "input_schema": {"type": "object"}}])";

struct MessagesServer : CallingServer {
  explicit MessagesServer(const std::string& prompt_end = "") : CallingServer(prompt_end) { path = "/v1/messages"; }

  static std::string asking(const std::string& more = "") { return R"("max_tokens": 100)" + more; }
  /// The prompt of a body's messages and other members.
  std::string prompt(const std::string& body) { return CallingServer::prompt(asking(", ") + body); }
  Json error(const std::string& body) {
    service->asked.clear();
    FakeOutput out;
    begin(body)->poll(out);
    CHECK(out.status == 400);
    const Json json = out.json();
    CHECK(json["type"] == "error");
    CHECK(json["error"]["type"] == "invalid_request_error");
    return json["error"]["message"];
  }
};

}  // namespace

TEST_CASE("messages have the shapes of the oracle, whole and streamed, token by token") {
  MessagesServer server;
  for (const Json& example : serve::test::oracle_examples()) {
    const Json& parsed = example["parsed"];
    INFO(example["name"]);
    const std::string text = serve::test::model_text(parsed);
    const auto reason = parsed["ended_by"] == "length" ? slm::FinishReason::length : slm::FinishReason::end_token;
    const std::string asked = MessagesServer::asking(two_tools) + R"(, "stop_sequences": ["three"])";
    CHECK(Matching{}(example["messages"], server.answer(asked, text, false, reason).json()).empty());
    for (const bool by_token : {false, true}) {
      const FakeOutput out = server.answer(asked + R"(, "stream": true)", text, by_token, reason);
      CHECK(out.ended);
      Json events = serve::test::joined(out.named_events(), Json::json_pointer("/delta/text"));
      events = serve::test::joined(events, Json::json_pointer("/delta/thinking"));
      INFO(events.dump());
      CHECK(Matching{}(example["messages_stream"], events).empty());
    }
  }
}

TEST_CASE("the messages of a request are those of a chat") {
  MessagesServer server;
  CHECK(server.prompt(R"("messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])") ==
        "user: a\nb\nassistant: ");
  CHECK(server.prompt(R"("system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}])") == "system: s\nuser: a\nassistant: ");
  // The results of calls follow the calls at once, and numbers keep their digits.
  CHECK(server.prompt(R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
    {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "look"},
    {"type": "tool_use", "id": "c", "name": "f", "input": {"z": 1234567890123456789, "b": 1.0}}]},
    {"role": "user", "content": [{"type": "text", "text": "more"},
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "7"}], "is_error": false}]}])") ==
        "user: a\nassistant: <think>\nhm\n</think>\n\nlook\n" +
            call_text("f", R"({"z": 1234567890123456789, "b": 1.0})") + "\ntool: 7\nuser: more\nassistant: ");
  // The last message of the assistant is continued.
  CHECK(server.prompt(R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "so"}])") ==
        "user: a\nassistant: so");
  const std::string stamped = "x-anthropic-billing-header: cc_version=1; cch=a1b2c; x=1;\\nBe brief";
  CHECK(server.prompt(R"("system": ")" + stamped + R"(", "messages": [{"role": "user", "content": "a"}])") ==
        "system: x-anthropic-billing-header: cc_version=1; ; x=1;\nBe brief\nuser: a\nassistant: ");
}

TEST_CASE("tools and choices of tools are those of a chat") {
  MessagesServer server;
  const std::string messages = R"("messages": [{"role": "user", "content": "x"}])";
  CHECK(
      server.prompt(messages + two_tools)
          .starts_with(
              R"(<tools>[{"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": )"
              R"({"type": "object", "properties": {"city": {"type": "string"}}}}}, {"type": "function")"));
  CHECK(server.service->asked.back().request.constraint != nullptr);  // of calls
  CHECK(server.prompt(messages + two_tools + R"(, "tool_choice": {"type": "none"})") == "user: x\nassistant: ");
  CHECK(server.service->asked.back().request.constraint == nullptr);
  for (const char* choice : {R"({"type": "any"})", R"({"type": "tool", "name": "now"})"}) {
    server.prompt(messages + two_tools + R"(, "tool_choice": )" + choice);
    CHECK(server.service->asked.back().request.constraint != nullptr);
  }
  server.service->asked.clear();
  const FakeOutput out = server.answer(
      MessagesServer::asking(two_tools) + R"(, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true})",
      call_text("now", "{}") + "\n" + call_text("now", "{}"));
  CHECK(out.json()["content"].size() == 1);
  CHECK(out.json()["stop_reason"] == "tool_use");
}

TEST_CASE("a budget closes the reasoning by its tag") {
  MessagesServer server("{% if enable_thinking %}<think>\n{% endif %}");
  const std::string messages = R"("messages": [{"role": "user", "content": "x"}])";
  CHECK(server.prompt(messages + R"(, "thinking": {"type": "disabled"})").ends_with("assistant: "));
  CHECK_FALSE(server.service->asked.back().request.sampling.adjust_logits);
  CHECK(server.prompt(messages + R"(, "thinking": {"type": "enabled", "budget_tokens": 2})").ends_with("<think>\n"));
  const slm::Request asked = server.service->asked.back().request;
  const auto forced = [&](const std::vector<slm::Token>& answer) {
    std::vector<slm::Token> text = asked.prompt;
    text.insert(text.end(), answer.begin(), answer.end());
    std::vector<float> logits(2048, 1.0f);
    asked.sampling.adjust_logits(text, logits);
    const auto most = std::max_element(logits.begin(), logits.end());
    const bool is_forced = std::count(logits.begin(), logits.end(), *most) == 1;
    return is_forced ? static_cast<slm::Token>(most - logits.begin()) : slm::no_token;
  };
  const std::vector<slm::Token> tag = server.model.tokenizer.encode("</think>", false);
  REQUIRE(tag.size() > 1);
  CHECK(forced({}) == slm::no_token);
  CHECK(forced({68}) == slm::no_token);
  CHECK(forced({68, 69}) == tag[0]);
  CHECK(forced({68, 69, tag[0]}) == tag[1]);
  CHECK(forced({68, 69, 70}) == slm::no_token);  // another text is never closed
}

TEST_CASE("tokens are counted without running anything") {
  MessagesServer server;
  server.path = "/v1/messages/count_tokens";
  FakeOutput out;
  server.begin(R"({"messages": [{"role": "user", "content": "abc"}]})")->poll(out);
  CHECK(server.service->asked.empty());
  CHECK(out.json() == Json{{"input_tokens", server.model.tokenizer.encode("user: abc\nassistant: ", false).size()}});
}

TEST_CASE("wrong messages are refused in the form of the API") {
  MessagesServer server;
  const auto with = [&](const std::string& members) {
    return server.error("{" + MessagesServer::asking(", ") + members + "}");
  };
  const auto message = [&](const std::string& content, const char* role = "user") {
    return with(R"("messages": [{"role": ")" + std::string(role) + R"(", "content": )" + content + "}]");
  };
  const std::string user = R"("messages": [{"role": "user", "content": "x"}])";
  using Catch::Contains;
  CHECK_THAT(server.error("{" + user + "}").get<std::string>(), Contains("`max_tokens`"));
  CHECK_THAT(with(R"("stream": false)").get<std::string>(), Contains("`messages`"));
  for (const char* content : {"5", "[]", "[5]", R"([{"type": "image", "source": {}}])", R"([{"type": "text"}])",
                              R"([{"type": "tool_result"}])", R"([{"type": "tool_use"}])", "null"}) {
    CHECK_THAT(message(content).get<std::string>(), Contains("`messages`") || Contains("block"));
  }
  for (const char* content : {R"([{"type": "tool_use", "id": "a", "name": "f", "input": 5}])",
                              R"([{"type": "tool_use", "id": "a", "name": "f", "input": {}}])",
                              R"([{"type": "redacted_thinking", "data": ""}])"}) {
    message(content, "assistant");
  }
  message(R"("x")", "system");
  for (const char* members :
       {R"("tools": [5])", R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])", R"("tools": [{}])",
        R"("tool_choice": {"type": "required"})", R"("tool_choice": {"type": "any"})", R"("thinking": {"type": "on"})",
        R"("thinking": {"type": "enabled", "budget_tokens": 0})", R"("system": 5)", R"("system": [{"type": "image"}])",
        R"("stop_sequences": [5])", R"("temperature": 1.5)", R"("output_config": {"format": {"type": "text"}})",
        R"("mcp_servers": [{}])", R"("stop": "x")", R"("n": 2)"}) {
    INFO(members);
    with(user + ", " + members);
  }
  CHECK_THAT(with(user + R"(, "stop_sequences": ["", 5])").get<std::string>(), Contains("`stop_sequences`"));
  FakeOutput out;
  server.begin("{" + MessagesServer::asking(", ") + user + R"(, "model": "other"})")->poll(out);
  CHECK(out.status == 404);
  CHECK(out.json()["error"]["type"] == "not_found_error");
}

TEST_CASE("an error in a stream is an event, and a silent stream has pings") {
  MessagesServer server;
  const auto exchange = server.begin(MessagesServer::asking(R"(, "stream": true)"));
  FakeOutput out;
  exchange->poll(out);
  exchange->idle(out);
  server.service->asked.back().fail(slm::Error("backend.lost", "it is gone", "Buy another"));
  exchange->poll(out);
  const std::vector<Json> events = out.named_events();
  REQUIRE(events.size() == 3);
  CHECK(events[1]["type"] == "ping");
  CHECK(events[2]["error"]["type"] == "api_error");
  CHECK(out.ended);
}
