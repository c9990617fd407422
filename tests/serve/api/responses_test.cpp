// OpenAI's /v1/responses: requests as chats, answers and events.
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

constexpr const char* two_tools = R"(, "tools": [{"type": "function", "name": "get_weather", "parameters": )"
                                  R"({"type": "object", "properties": {"city": {"type": "string"}}}, "strict": true}, )"
                                  R"({"type": "function", "name": "now"}])";

struct ResponsesServer : CallingServer {
  explicit ResponsesServer(const std::string& prompt_end = "") : CallingServer(prompt_end) { path = "/v1/responses"; }

  /// The field that a refusal names.
  std::string refused(const std::string& members) {
    service->asked.clear();
    FakeOutput out;
    begin("{" + members + "}")->poll(out);
    return out.status == 400 ? out.json()["error"]["param"].get<std::string>() : "nothing";
  }
};

}  // namespace

TEST_CASE("responses have the shapes of the oracle, whole and streamed, token by token") {
  ResponsesServer server;
  for (const Json& example : serve::test::oracle_examples()) {
    const Json& parsed = example["parsed"];
    INFO(example["name"]);
    const std::string text = serve::test::model_text(parsed);
    const auto reason = parsed["ended_by"] == "length" ? slm::FinishReason::length : slm::FinishReason::end_token;
    const auto asked = [&](const std::string& more) {
      return std::string(R"({"input": "x", "stop": "three")") + two_tools + more + "}";
    };
    Json expected = example["responses"];
    expected.erase("tools");
    CHECK(Matching{}(expected, server.answer(asked(""), text, false, reason).json()).empty());
    expected = example["responses_stream"];
    for (Json& event : expected) {
      if (event.contains("response")) event["response"].erase("tools");
    }
    for (const bool by_token : {false, true}) {
      const FakeOutput out = server.answer(asked(R"(, "stream": true)"), text, by_token, reason);
      CHECK(out.ended);
      const std::vector<Json> all = out.named_events();
      for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i]["sequence_number"] == i);
      const Json events = serve::test::joined(all, Json::json_pointer("/delta"));
      for (Json& event : expected) event.erase("sequence_number");
      INFO(events.dump());
      CHECK(Matching{}(expected, events).empty());
    }
  }
}

TEST_CASE("the items of a request are messages of a chat") {
  ResponsesServer server;
  CHECK(server.prompt(R"("input": "a", "instructions": "s")") == "system: s\nuser: a\nassistant: ");
  CHECK(server.prompt(R"("input": [{"role": "developer", "content": "d"}, {"type": "message", "role": "user", "content":
    [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "look", "annotations": []}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"z\": 1, \"b\": 2}"},
    {"type": "function_call_output", "call_id": "c", "output": "7"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "8"}]}])") ==
        "developer: d\nuser: a\nb\nassistant: <think>\nhm\n</think>\n\nlook\n" + call_text("f", R"({"z": 1, "b": 2})") +
            "\ntool: 7\ntool: 8\nassistant: ");
  server.prompt(R"("input": "a", "max_output_tokens": 7)");
  CHECK(server.service->asked.back().request.sampling.max_new_tokens == 7);
  CHECK(server.service->asked.back().request.constraint == nullptr);
  server.prompt(R"("input": "a", "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema":
    {"type": "object"}}})");
  CHECK(server.service->asked.back().request.constraint != nullptr);
  server.prompt(std::string(R"("input": "a", "tool_choice": {"type": "function", "name": "now"})") + two_tools);
  CHECK(server.service->asked.back().request.constraint != nullptr);
}

TEST_CASE("an answer repeats fields of its request") {
  ResponsesServer server;
  const Json answer =
      server.answer(R"({"input": "a", "temperature": 0.25, "metadata": {"k": "v"}, "store": true})", "yes").json();
  CHECK(answer["temperature"] == 0.25);
  CHECK(answer["top_p"] == 1);
  CHECK(answer["metadata"] == Json{{"k", "v"}});
  CHECK(answer["store"] == false);
  CHECK(answer["previous_response_id"].is_null());
  CHECK(answer["completed_at"].is_number());
}

TEST_CASE("tokens of an input and of a chat are counted without running anything") {
  ResponsesServer server;
  const std::size_t count = server.model.tokenizer.encode("user: abc\nassistant: ", false).size();
  const Json expected{{"object", "response.input_tokens"}, {"input_tokens", count}};
  server.path = "/v1/responses/input_tokens";
  FakeOutput out, chat;
  server.begin(R"({"input": "abc"})")->poll(out);
  CHECK(out.json() == expected);
  server.path = "/v1/chat/completions/input_tokens";
  server.begin(R"({"messages": [{"role": "user", "content": "abc"}]})")->poll(chat);
  CHECK(chat.json() == expected);
  FakeOutput zero;  // in a name that is ignored
  server.begin(R"({"messages": [{"role": "user", "content": "abc"}], "name\u0000": 1})")->poll(zero);
  CHECK(zero.json() == expected);
  CHECK(server.service->asked.empty());
}

TEST_CASE("wrong items and fields are refused by their names") {
  ResponsesServer server;
  for (const char* input :
       {"5", "null", "[]", "[5]", R"([{"type": "item_reference", "id": "x"}])", R"([{"role": "user"}])",
        R"([{"role": "tool", "content": "x"}])", R"([{"role": "user", "content": [{"type": "input_image"}]}])",
        R"([{"role": "user", "content": [5]}])", R"([{"type": "function_call", "name": "f"}])",
        R"([{"type": "function_call_output", "call_id": "x"}])", R"([{"type": "reasoning"}])"}) {
    INFO(input);
    CHECK(server.refused(std::string(R"("input": )") + input) == "input");
  }
  for (const auto& [members, field] :
       std::vector<std::pair<const char*, const char*>>{{R"("previous_response_id": "resp_1")", "previous_response_id"},
                                                        {R"("background": true)", "background"},
                                                        {R"("conversation": "c")", "conversation"},
                                                        {R"("truncation": "auto")", "truncation"},
                                                        {R"("max_tokens": 5)", "max_tokens"},
                                                        {R"("messages": [{}])", "messages"},
                                                        {R"("tools": [{"type": "web_search"}])", "tools"},
                                                        {R"("tools": [{"type": "function"}])", "tools"},
                                                        {R"("tool_choice": "required")", "tool_choice"},
                                                        {R"("tool_choice": {"type": "file_search"})", "tool_choice"},
                                                        {R"("text": {"format": {"type": "xml"}})", "text"},
                                                        {R"("text": {"format": {"type": "json_schema"}})", "text"},
                                                        {R"("reasoning": 5)", "reasoning"},
                                                        {R"("max_output_tokens": 0)", "max_output_tokens"}}) {
    INFO(members);
    CHECK(server.refused(std::string(R"("input": "a", )") + members) == field);
  }
  std::string longest;
  for (int i = 0; i < 5000; ++i) longest += "x ";
  CHECK(server.refused(R"("input": ")" + longest + "\"") == "input");
}

TEST_CASE("an error in a stream is a failed response") {
  ResponsesServer server;
  const auto exchange = server.begin(R"({"input": "a", "stream": true})");
  FakeOutput out;
  exchange->poll(out);
  server.service->asked.back().fail(slm::Error("backend.lost", "it is gone", "Buy another"));
  exchange->poll(out);
  const std::vector<Json> events = out.named_events();
  REQUIRE(events.size() == 3);
  CHECK(events[2]["type"] == "response.failed");
  CHECK(events[2]["response"]["error"]["code"] == "server_error");
  CHECK(out.ended);
}
