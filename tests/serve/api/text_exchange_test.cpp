// Answers as their clients see them, written while a fake engine says token after token.
#include <catch2/catch.hpp>
#include <limits>

#include "api/completion_logprobs.hpp"
#include "serve/api/fake_service.hpp"
#include "slm/text/utf8.hpp"
#include "support/paths.hpp"

using serve::test::FakeOutput;
using serve::test::FakeServer;
using slm::Json;

namespace {

std::vector<slm::Token> ids(const std::string& text) {
  static const auto tokenizer = slm::Tokenizer::from(slm::testing::source_path("examples/demo_pair/target"));
  return tokenizer.encode(text, false);
}

}  // namespace

TEST_CASE("a whole answer is written once, after the end of all its choices") {
  FakeServer server;
  const auto exchange = server.begin("/v1/completions", R"({"prompt": "def", "n": 2, "temperature": 0})");
  auto& asked = server.service->asked;
  REQUIRE(asked.size() == 2);
  FakeOutput out;
  exchange->poll(out);
  for (const slm::Token token : ids(" main")) asked[0].say(token);
  asked[0].end(slm::FinishReason::length);
  exchange->poll(out);
  CHECK(out.status == 0);
  asked[1].say(0);
  asked[1].end(slm::FinishReason::end_token);
  exchange->poll(out);
  CHECK(out.status == 200);
  CHECK(out.type == "application/json");
  const Json answer = out.json();
  CHECK(answer["choices"][0]["text"] == " main");
  CHECK(answer["choices"][0]["finish_reason"] == "length");
  CHECK(answer["choices"][1]["text"] == "");
  CHECK(answer["choices"][1]["finish_reason"] == "stop");
  CHECK(answer["choices"][1]["index"] == 1);
  CHECK(answer["usage"]["completion_tokens"] == ids(" main").size() + 1);
  CHECK(answer["usage"]["prompt_tokens"] == asked[0].request.prompt.size());
  CHECK(answer["system_fingerprint"] == "slm-test");
}

TEST_CASE("what has come is one write, cut where drafted tokens begin and end, and characters stay whole") {
  FakeServer server;
  const auto exchange = server.begin("/v1/completions", R"({"prompt": "def", "stream": true})");
  auto& asked = server.service->asked[0];
  FakeOutput out;
  exchange->poll(out);
  CHECK(out.status == 200);
  CHECK(out.type == "text/event-stream; charset=utf-8");
  CHECK(out.text.empty());
  const auto smile = ids("\xF0\x9F\x99\x82");
  REQUIRE(smile.size() > 1);
  asked.say(ids("x").front());
  asked.say(ids("y").front(), true);
  asked.say(smile.front());
  exchange->poll(out);
  CHECK(out.writes == 1);
  CHECK(out.events().size() == 2);
  for (std::size_t i = 1; i < smile.size(); ++i) asked.say(smile[i]);
  asked.end(slm::FinishReason::context);
  exchange->poll(out);
  CHECK(out.ended);
  const auto events = out.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0]["choices"][0]["text"] == "x");
  CHECK_FALSE(events[0]["choices"][0].contains("slm"));
  CHECK(events[1]["choices"][0]["text"] == "y");
  CHECK(events[1]["choices"][0]["slm"]["drafted"] == true);
  CHECK(events[2]["choices"][0]["text"] == "\xF0\x9F\x99\x82");
  CHECK(events[2]["choices"][0]["finish_reason"] == "length");
  CHECK(events[0]["choices"][0]["finish_reason"].is_null());
}

TEST_CASE("a chat's stream begins with the role when the first token is there, though it says nothing yet") {
  FakeServer server;
  const auto exchange =
      server.begin("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "stream": true,
                                  "stream_options": {"include_usage": true}})");
  auto& asked = server.service->asked[0];
  FakeOutput out;
  exchange->poll(out);
  CHECK(out.text.empty());
  asked.say(ids("\xF0\x9F\x99\x82").front());
  exchange->poll(out);
  REQUIRE(out.events().size() == 1);
  CHECK(out.events()[0]["choices"][0]["delta"] == Json{{"role", "assistant"}, {"content", nullptr}});
  CHECK(out.events()[0]["usage"].is_null());
  asked.end(slm::FinishReason::length);
  exchange->poll(out);
  const auto events = out.events();
  REQUIRE(events.size() == 4);
  for (const Json& event : events) CHECK(event["system_fingerprint"] == "slm-test");
  CHECK(events[1]["choices"][0]["delta"]["content"] == "\xEF\xBF\xBD");
  CHECK(events[1]["choices"][0]["finish_reason"].is_null());
  CHECK(events[2]["choices"][0]["delta"] == Json::object());
  CHECK(events[2]["choices"][0]["finish_reason"] == "length");
  CHECK(events[3]["choices"] == Json::array());
  CHECK(events[3]["usage"]["completion_tokens"] == 1);
}

TEST_CASE("a chat reports its prompt once, next to its choices") {
  FakeServer server;
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}], "return_token_ids": true, "stream": )";
  const auto whole = server.begin("/v1/chat/completions", body + "false}");
  const auto stream = server.begin("/v1/chat/completions", body + R"(true, "n": 2})");
  FakeOutput answer, events;
  for (auto& asked : server.service->asked) {
    asked.say(ids("x").front());
    asked.end(slm::FinishReason::length);
  }
  whole->poll(answer);
  stream->poll(events);
  const Json prompt = server.service->asked[0].request.prompt;
  CHECK(answer.json()["prompt_token_ids"] == prompt);
  CHECK(answer.json()["choices"][0]["token_ids"] == ids("x"));
  CHECK_FALSE(answer.json()["choices"][0].contains("prompt_token_ids"));
  REQUIRE(events.events().size() == 6);
  CHECK(events.events()[0]["prompt_token_ids"] == prompt);
  for (std::size_t i = 1; i < 6; ++i) CHECK_FALSE(events.events()[i].contains("prompt_token_ids"));
}

TEST_CASE("a stop string ends a choice, and what the engine says behind it is not counted") {
  FakeServer server;
  const auto exchange = server.begin("/v1/completions", R"({"prompt": "def", "stop": ["zz", "bc"]})");
  auto& asked = server.service->asked[0];
  FakeOutput out;
  for (const char* letter : {"a", "b", "c", "d"}) asked.say(ids(letter).front());
  exchange->poll(out);
  CHECK(asked.answer->satisfied);
  CHECK(out.status == 0);
  asked.say(ids("e").front());
  asked.end(slm::FinishReason::sink);
  exchange->poll(out);
  const Json choice = out.json()["choices"][0];
  CHECK(choice["text"] == "a");
  CHECK(choice["finish_reason"] == "stop");
  CHECK(choice["stop_reason"] == "bc");
  CHECK(out.json()["usage"]["completion_tokens"] == 3);
}

TEST_CASE("before min_tokens a stop string is text like any other") {
  FakeServer server;
  const auto exchange = server.begin("/v1/completions", R"({"prompt": "def", "stop": ["bc", "d"], "min_tokens": 3})");
  auto& asked = server.service->asked[0];
  FakeOutput out;
  for (const char* letter : {"a", "b", "c", "d"}) asked.say(ids(letter).front());
  asked.end(slm::FinishReason::sink);
  exchange->poll(out);
  CHECK(out.json()["choices"][0]["text"] == "abc");
  CHECK(out.json()["choices"][0]["stop_reason"] == "d");
}

TEST_CASE("texts to be embedded share pages inside their salt, as those to be continued do") {
  FakeServer server;
  for (const auto& [path, field] : {std::pair{"/v1/completions", "prompt"}, std::pair{"/v1/embeddings", "input"}}) {
    for (const char* salt : {"null", R"("a")", R"("b")"}) {
      server.begin(path, slm::text("{\"", field, R"(": "def", "cache_salt": )", salt, "}"));
    }
  }
  const auto tenant = [&](std::size_t i) { return server.service->asked.at(i).request.tenant; };
  CHECK(tenant(0) == 0);
  CHECK(tenant(1) != tenant(2));
  for (std::size_t i = 0; i < 3; ++i) CHECK(tenant(i) == tenant(i + 3));
}

TEST_CASE("a fault is a status before the answer, and an event inside a stream") {
  FakeServer server;
  const std::string body = R"({"prompt": "def", "stream": )";
  const auto whole = server.begin("/v1/completions", body + "false}");
  const auto stream = server.begin("/v1/completions", body + "true}");
  for (auto& asked : server.service->asked) {
    asked.say(ids("x").front());
    asked.fail(slm::Error("cache.full", "no page for '/secret'", "Wait"));
  }
  FakeOutput out, streamed;
  whole->poll(out);
  CHECK(out.status == 500);
  CHECK(out.json()["error"]["slm_id"] == "cache.full");
  CHECK(out.json()["error"]["type"] == "server_error");
  CHECK(out.text.find("secret") == out.text.npos);
  stream->poll(streamed);
  CHECK(streamed.ended);
  REQUIRE(streamed.events().size() >= 1);
  CHECK(streamed.events().back()["error"]["slm_id"] == "cache.full");
}

TEST_CASE("an answer that is ended from above says that the server shuts down") {
  FakeServer server;
  const auto exchange = server.begin("/v1/completions", R"({"prompt": "def"})");
  server.api->cancel();
  CHECK(server.service->asked[0].request.cancel.stop_requested());
  server.service->asked[0].end(slm::FinishReason::cancelled);
  FakeOutput out;
  exchange->poll(out);
  CHECK(out.status == 503);
  CHECK(out.json()["error"]["code"] == "draining");
}

TEST_CASE("a request whose last choice finds no place takes none") {
  FakeServer server;
  server.service->most = 2;
  const FakeOutput out = server.ask("/v1/completions", R"({"prompt": "def", "n": 3})");
  CHECK(out.status == 503);
  CHECK(out.json()["error"]["code"] == "overloaded");
  CHECK(out.headers == serve::HttpHeaders{{"Retry-After", "2"}});
  for (const auto& asked : server.service->asked) CHECK(asked.answer->cancelled);
}

TEST_CASE("a client that goes ends its texts") {
  FakeServer server;
  server.begin("/v1/completions", R"({"prompt": "def", "n": 2})").reset();
  for (const auto& asked : server.service->asked) CHECK(asked.answer->cancelled);
}

TEST_CASE("log-probabilities: bytes that are no character have own names, and minus infinity is a number") {
  FakeServer server;
  const auto exchange = server.begin("/v1/completions", R"({"prompt": "def", "logprobs": 2})");
  auto& asked = server.service->asked[0];
  CHECK(asked.request.logprobs.raw);
  CHECK(asked.request.logprobs.top == 2);
  const auto smile = ids("\xF0\x9F\x99\x82");
  REQUIRE(smile.size() > 1);
  const slm::Token other = smile[0] == smile[1] ? smile.back() : smile[1];
  for (const slm::Token part : smile) asked.say(part, false, -2, {{other, -0.5}, {smile[0], -2}});
  asked.say(0, false, -1);  // an end token that the text lacks
  asked.say(ids("y").front(), false, -std::numeric_limits<double>::infinity());
  asked.end(slm::FinishReason::length);
  FakeOutput out;
  exchange->poll(out);
  const Json lists = out.json()["choices"][0]["logprobs"];
  const std::string first = lists["tokens"][0];
  CHECK(first.starts_with("bytes:\\xf0"));
  CHECK(lists["top_logprobs"][0].size() == 2);
  CHECK(lists["top_logprobs"][0][first] == -2.0);
  CHECK(lists["token_logprobs"].back() == -9999.0);
  CHECK(lists["tokens"].back() == "y");
  std::vector<int> places(smile.size(), 0);  // of all parts of a character: its own
  places.insert(places.end(), {1, 1});
  CHECK(lists["text_offset"] == Json(places));
}

TEST_CASE("places of an echoed prompt's tokens are those of the text, which lacks the first token and a blank") {
  const auto tokenizer =
      slm::Tokenizer::from(slm::testing::source_path("tests/fixtures/tokenizers/llama2_legacy.json"));
  const std::string prompt = "the thing in the \xC3\xA9 \xF0\x9F\x99\x82 x";
  const auto tokens = tokenizer.encode(prompt);
  REQUIRE(tokenizer.is_special(tokens.front()));
  std::vector<slm::AnsweredToken> rest;
  for (std::size_t i = 1; i < tokens.size(); ++i) rest.emplace_back(slm::GeneratedToken{.token = tokens[i]});
  serve::CompletionLogprobs lists(tokenizer);
  lists.add_prompt(tokens.front(), rest, prompt);
  lists.add({slm::AnsweredToken(slm::GeneratedToken{.token = tokens.back()})});
  const auto said = lists.take();
  REQUIRE(said["tokens"].size() == tokens.size() + 1);
  CHECK(said["text_offset"][0] == 0);
  CHECK(said["text_offset"][1] == 0);
  CHECK(said["tokens"][1] == "the");
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const std::string token = said["tokens"][i];
    if (token.starts_with("bytes:")) continue;
    std::size_t at = 0;
    for (int skipped = 0; skipped < said["text_offset"][i].get<int>(); ++skipped) slm::utf8::next(prompt, at);
    INFO(token << " at " << said["text_offset"][i]);
    CHECK(prompt.substr(at).starts_with(token));
  }
  CHECK(said["text_offset"].back() == slm::utf8::count(prompt));
}

TEST_CASE("a silent stream says that it lives, and a whole answer does not") {
  FakeServer server;
  const auto stream = server.begin("/v1/completions", R"({"prompt": "def", "stream": true})");
  FakeOutput out;
  stream->poll(out);
  stream->idle(out);
  CHECK(out.text == ": keep-alive\n\n");
  FakeOutput nothing;
  server.begin("/v1/completions", R"({"prompt": "def"})")->idle(nothing);
  CHECK(nothing.text.empty());
}
