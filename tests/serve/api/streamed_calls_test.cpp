// Calls that a grammar holds are streamed while the model writes them.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "serve/api/reply_oracle.hpp"

using serve::test::call_text;
using serve::test::CallingServer;
using serve::test::FakeOutput;
using serve::test::two_tools;
using slm::Json;

namespace {

constexpr const char* required = R"(, "tool_choice": "required")";
const std::string arguments = R"({"city": "a \"{}\" b", "days": 2})";

/// The name and the arguments of a streamed chat's only call, with the number of events that have arguments.
struct Streamed {
  std::string name, arguments, reasoning, finish;
  int pieces = 0;
};

Streamed read_stream(const std::vector<Json>& events) {
  Streamed read;
  for (const Json& event : events) {
    const Json& choice = event["choices"][0];
    const Json& delta = choice["delta"];
    if (choice["finish_reason"].is_string()) read.finish = choice["finish_reason"];
    if (delta.contains("reasoning_content")) read.reasoning += delta["reasoning_content"];
    CHECK((!delta.contains("content") || delta["content"].is_null()));
    if (!delta.contains("tool_calls")) continue;
    const Json& function = delta["tool_calls"][0]["function"];
    CHECK(delta["tool_calls"][0]["index"] == 0);
    CHECK(function.contains("name") == read.name.empty());
    CHECK(delta["tool_calls"][0].contains("id") == read.name.empty());
    if (function.contains("name")) read.name = function["name"];
    read.arguments += function["arguments"];
    read.pieces += function["arguments"] != "" ? 1 : 0;
  }
  return read;
}

}  // namespace

TEST_CASE("the arguments of a required call are streamed piece by piece") {
  for (const char* begun : {"", "<think>\n"}) {
    CallingServer server(begun);
    const bool reasons = *begun != '\0';
    const std::string text = (reasons ? "hm\n</think>\n\n" : "") + call_text("get_weather", arguments);
    for (const bool by_token : {false, true}) {
      INFO(text << by_token);
      const auto out = server.answer(two_tools(std::string(required) + R"(, "stream": true)"), text, by_token);
      const Streamed read = read_stream(out.events());
      CHECK(read.name == "get_weather");
      CHECK(read.arguments == arguments);
      CHECK(read.reasoning == (reasons ? "hm" : ""));
      CHECK(read.finish == "tool_calls");
      CHECK((read.pieces > 1) == by_token);
    }
    const Json message = server.message(two_tools(required), text);
    CHECK(message["tool_calls"].size() == 1);
    CHECK(message["tool_calls"][0]["function"]["arguments"] == arguments);
    CHECK(message["content"].is_null());
  }
}

TEST_CASE("a required call that the limit cuts is the beginning of a call, streamed or whole") {
  CallingServer server;
  const std::string text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a";
  const auto cut = slm::FinishReason::length;
  for (const bool by_token : {false, true}) {
    const auto out = server.answer(two_tools(std::string(required) + R"(, "stream": true)"), text, by_token, cut);
    const Streamed read = read_stream(out.events());
    CHECK(read.name == "get_weather");
    CHECK(read.arguments == "{\"city\": \"a");
    CHECK(read.finish == "length");
  }
  const Json choice = server.answer(two_tools(required), text, false, cut).json()["choices"][0];
  CHECK(choice["message"]["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"a");
  CHECK(choice["message"]["content"].is_null());
  CHECK(choice["finish_reason"] == "length");
}

TEST_CASE("the other APIs stream the arguments of required calls too") {
  CallingServer server;
  const std::string text = call_text("now", R"({"a": 1})");
  server.path = "/v1/messages";
  auto out =
      server.answer(R"("max_tokens": 50, "stream": true, "tool_choice": {"type": "any"}, "tools": [{"name": "now",
    "input_schema": {"type": "object"}}])",
                    text, true);
  std::string joined;
  int pieces = 0;
  for (const Json& event : out.named_events()) {
    if (event["type"] != "content_block_delta") continue;
    joined += event["delta"]["partial_json"];
    ++pieces;
  }
  CHECK(joined == R"({"a": 1})");
  CHECK(pieces > 1);
  server.path = "/v1/responses";
  out = server.answer(R"({"input": "x", "stream": true, "tool_choice": "required", "tools": [{"type": "function",
    "name": "now", "parameters": {"type": "object"}}]})",
                      text, true);
  const std::vector<Json> events = out.named_events();
  REQUIRE(events.size() > 4);
  const Json& done = events[events.size() - 3];
  CHECK(done["type"] == "response.function_call_arguments.done");
  CHECK(done["arguments"] == R"({"a": 1})");
  CHECK(events.back()["response"]["output"][0]["arguments"] == R"({"a": 1})");
}
