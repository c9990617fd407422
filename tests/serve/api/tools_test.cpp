// Tools and reasoning in chats: what the template and the client see.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "serve/api/calling_server.hpp"
#include "slm/io/json.hpp"
#include "slm/text/text_stream.hpp"
#include "support/paths.hpp"

using serve::test::call_text;
using serve::test::CallingServer;
using serve::test::chat_path;
using serve::test::FakeOutput;
using serve::test::now_tool;
using serve::test::two_tools;
using serve::test::weather_tool;
using slm::Json;

namespace {

/// A message without the ids of its calls, which are checked.
Json without_ids(Json message) {
  std::vector<std::string> ids;
  if (!message.contains("tool_calls")) return message;
  for (Json& call : message["tool_calls"]) {
    const std::string id = call["id"];
    CHECK(id.size() == 9);
    CHECK(std::all_of(id.begin(), id.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }));
    CHECK(std::find(ids.begin(), ids.end(), id) == ids.end());
    ids.push_back(id);
    call.erase("id");
  }
  return message;
}

/// The message that the deltas of a stream amount to.
Json joined(const std::vector<Json>& events, std::string& finish) {
  Json message{{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}};
  const auto append = [](Json& to, const Json& text) {
    to = (to.is_string() ? to.get<std::string>() : std::string()) + text.get<std::string>();
  };
  for (const Json& event : events) {
    if (event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    CHECK(finish.empty());  // nothing follows
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
    const Json& delta = choice["delta"];
    CHECK(delta.size() <= (delta.contains("role") ? 2u : 1u));
    for (const char* name : {"content", "reasoning_content"}) {
      if (delta.contains(name) && !delta[name].is_null()) append(message[name], delta[name]);
    }
    if (!delta.contains("tool_calls")) continue;
    for (const Json& part : delta["tool_calls"]) {
      Json& calls = message["tool_calls"];
      const std::size_t index = part["index"];
      if (part.contains("id")) {
        CHECK(index == calls.size());
        CHECK(part["function"]["arguments"] == "");
        Json call = part;
        call.erase("index");
        calls.push_back(call);
      } else {
        REQUIRE(index + 1 == calls.size());
        CHECK_FALSE(part["function"].contains("name"));
        append(calls[index]["function"]["arguments"], part["function"]["arguments"]);
      }
    }
  }
  return message;
}

}  // namespace

TEST_CASE("answers have the shapes of the oracle, whole and streamed, token by token") {
  std::ifstream file(slm::testing::source_path("tests/fixtures/tools/api.json"));
  CallingServer server;
  for (const Json& example : Json::parse(file)) {
    const Json& parsed = example["parsed"];
    if (parsed["ended_by"] == "stop_string") continue;
    const Json& expected = example["chat"]["choices"][0];
    INFO(example["name"]);
    std::string text;
    if (parsed["reasoning"] != "") text = "<think>\n" + parsed["reasoning"].get<std::string>();
    const bool cut = parsed["ended_by"] == "length";
    if (parsed["reasoning"] != "" && parsed["content"] != "") text += "\n</think>\n\n";
    text += parsed["content"];
    for (std::size_t i = 0; i < parsed["calls"].size(); ++i) {
      const std::string arguments = expected["message"]["tool_calls"][i]["function"]["arguments"];
      text += (text.empty() ? "" : "\n") + call_text(parsed["calls"][i]["name"], arguments);
    }
    const auto reason = cut ? slm::FinishReason::length : slm::FinishReason::end_token;
    Json message = expected["message"];
    for (Json& call : message["tool_calls"]) call.erase("id");
    if (message["tool_calls"].is_null()) message.erase("tool_calls");

    const Json choice = server.answer(two_tools(), text, false, reason).json()["choices"][0];
    CHECK(without_ids(choice["message"]) == message);
    CHECK(choice["finish_reason"] == expected["finish_reason"]);
    for (const bool by_token : {false, true}) {
      const FakeOutput out = server.answer(two_tools(R"(, "stream": true)"), text, by_token, reason);
      std::string finish;
      CHECK(without_ids(joined(out.events(), finish)) == message);
      CHECK(finish == expected["finish_reason"].get<std::string>());
    }
  }
}

TEST_CASE("tools reach the template as they were written, and results follow calls") {
  CallingServer server;
  server.begin(two_tools());
  const auto prompt = [&] { return server.model.tokenizer.decode(server.service->asked.back().request.prompt, false); };
  CHECK(prompt() == std::string("<tools>[") + weather_tool + ", " + now_tool + "]</tools>\nuser: x\nassistant: ");
  server.begin(two_tools(R"(, "tool_choice": "none")"));
  CHECK(prompt() == "user: x\nassistant: ");
  server.begin(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls":
    [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"b\": 2}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "7"}], "tools": []})");
  CHECK(prompt() == "user: x\nassistant: \n" + call_text("f", R"({"z": 1, "b": 2})") + "\ntool: 7\nassistant: ");
}

TEST_CASE("calls are read only where tools are offered") {
  CallingServer server;
  const std::string text = call_text("now", "{}");
  CHECK(server.message(R"("n": 1)", text)["content"] == text);
  CHECK(server.message(two_tools(R"(, "tool_choice": "none")"), text)["content"] == text);
  const Json message = server.message(two_tools(R"(, "tool_choice": "auto")"), text);
  CHECK(message["content"].is_null());
  CHECK(message["tool_calls"][0]["function"]["name"] == "now");
  CHECK(server.message(two_tools(), "<tool_call>\n{]")["content"] == "<tool_call>\n{]");
}

TEST_CASE("without parallel calls an answer ends after its first call") {
  CallingServer server;
  const auto exchange = server.begin(two_tools(R"(, "parallel_tool_calls": false)"));
  auto& asked = server.service->asked[0];
  const auto say = [&](const std::string& text) {
    for (const slm::Token token : server.model.tokenizer.encode(text, false)) asked.say(token);
  };
  FakeOutput out;
  say(call_text("now", "{}") + "\n");
  exchange->poll(out);
  CHECK(asked.answer->satisfied);
  say(call_text("get_weather", "{}"));
  asked.end(slm::FinishReason::sink);
  exchange->poll(out);
  const Json choice = out.json()["choices"][0];
  CHECK(choice["message"]["tool_calls"].size() == 1);
  CHECK(choice["finish_reason"] == "tool_calls");
}

TEST_CASE("reasoning is a separate member, counted, or a part of the content") {
  CallingServer open("<think>\n");
  const FakeOutput out = open.answer(R"("stream": false)", "so\n</think>\n\nyes");
  const Json message = out.json()["choices"][0]["message"];
  CHECK(message["reasoning_content"] == "so");
  CHECK(message["content"] == "yes");
  const int counted = out.json()["usage"]["completion_tokens_details"]["reasoning_tokens"];
  CHECK(counted > 0);
  CHECK(counted < out.json()["usage"]["completion_tokens"].get<int>());
  const std::string text = "so\n</think>\n\nyes";
  CHECK(open.message(R"("reasoning_format": "none")", text)["content"] == text);
  CHECK(open.message(R"("reasoning_format": "deepseek")", text)["content"] == "yes");
  CHECK(open.refused(R"("reasoning_format": "deepseek-legacy")") == "reasoning_format");
  CHECK(open.refused(two_tools(R"(, "reasoning_format": "none")")) == "reasoning_format");
  // A call of the reasoning is none, and the prompt of a user cannot begin it.
  CHECK_FALSE(open.message(two_tools(), "so " + call_text("now", "{}")).contains("tool_calls"));
  CallingServer closed;
  CHECK(closed.message(R"("messages_": 1)", "yes")["content"] == "yes");
}

TEST_CASE("special tokens of the form are read, and others stay out of the text") {
  const auto tokenizer = slm::Tokenizer::from(slm::testing::source_path("examples/demo_pair/target"));
  REQUIRE(tokenizer.is_special(0));
  const auto shown = [&](const std::vector<slm::Token>& kept) {
    std::string text;
    slm::TextStream stream(
        tokenizer, {}, [&text](std::string_view piece) { text += piece; }, {}, 0, kept);
    for (const slm::Token token : {slm::Token{0}, tokenizer.encode("x", false).front()}) stream(token);
    stream.finish();
    return text;
  };
  CHECK(shown({}) == "x");
  CHECK(shown({0}) == "<|endoftext|>x");
}

TEST_CASE("wrong tools are refused with their field") {
  CallingServer server;
  for (const char* list :
       {"5", "[5]", "[{}]", R"([{"type": "function"}])", R"([{"type": "retrieval", "function": {"name": "f"}}])",
        R"([{"type": "function", "function": {}}])", R"([{"type": "function", "function": {"name": ""}}])",
        R"([{"type": "function", "function": {"name": "a b"}}])", R"([{"type": "function", "function": {"name": 5}}])",
        R"([{"type": "function", "function": {"name": "f", "parameters": 5}}])"}) {
    INFO(list);
    CHECK(server.refused(std::string(R"("tools": )") + list) == "tools");
  }
  std::string many = now_tool;
  for (int i = 0; i < 128; ++i) many += std::string(", ") + now_tool;
  CHECK(server.refused(R"("tools": [)" + many + "]") == "tools");
  CHECK(server.refused(R"("tool_choice": "required")") == "tool_choice");
  CHECK(server.refused(R"("tool_choice": {"type": "function", "function": {"name": "now"}})") == "tool_choice");
  CHECK(server.refused(two_tools(R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})")) ==
        "tool_choice");
  CHECK(server.refused(two_tools(R"(, "tool_choice": "any")")) == "tool_choice");
  CHECK(server.refused(two_tools(R"(, "tool_choice": 5)")) == "tool_choice");
  CHECK(server.refused(two_tools(R"(, "parallel_tool_calls": 1)")) == "parallel_tool_calls");
  CHECK(server.refused(R"("functions": [{"name": "f"}])") == "functions");
  serve::test::FakeServer plain;
  const FakeOutput out =
      plain.ask(chat_path, R"({"messages": [{"role": "user", "content": "x"}], )" + two_tools() + "}");
  CHECK(out.status == 400);
  CHECK(out.json()["error"]["param"] == "tools");
  CHECK(out.json()["error"]["slm_id"] == "chat.no-tools");
}
