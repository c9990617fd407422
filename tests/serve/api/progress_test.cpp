// Streams that report how far a prompt is read, in the form of each API, and times of responses.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "serve/api/calling_server.hpp"

using serve::test::CallingServer;
using serve::test::FakeOutput;
using serve::test::FakeServer;
using slm::Json;

namespace {

/// A prompt of 60 tokens, of which the cache has 20, is read in two steps, with a look at the stream in between.
FakeOutput read_prompt(FakeServer& server, const std::string& path, const std::string& members) {
  server.service->asked.clear();
  const std::string prompt = Json(std::vector<int>(60, 5)).dump();
  const auto exchange = server.begin(path, R"({"stream": true, "prompt": )" + prompt + members + "}");
  auto& asked = server.service->asked.at(0);
  FakeOutput out;
  exchange->poll(out);
  if (asked.request.progress) {
    for (const std::size_t read : {20, 45, 59}) asked.request.progress(read, 59);
    exchange->poll(out);
  }
  asked.say(5);
  asked.end(slm::FinishReason::length);
  exchange->poll(out);
  return out;
}

/// [processed, cache, total] of the events that report.
std::vector<Json> reports_in(const std::vector<Json>& events) {
  std::vector<Json> found;
  for (const Json& event : events) {
    if (!event.contains("prompt_progress")) continue;
    const Json& progress = event["prompt_progress"];
    CHECK(progress["time_ms"].is_number_integer());
    found.push_back({progress["processed"], progress["cache"], progress["total"]});
  }
  return found;
}

const std::vector<Json> three_reports{{20, 20, 60}, {45, 20, 60}, {60, 20, 60}};

}  // namespace

TEST_CASE("a stream reports the tokens of the cache, those that are read, and the whole prompt before its answer") {
  FakeServer server;
  for (const std::string path : {"/v1/completions", "/completion"}) {
    CAPTURE(path);
    const bool is_openai = path == "/v1/completions";
    const std::vector<Json> events =
        read_prompt(server, path, R"(, "return_progress": true, "timings_per_token": true)").events(is_openai);
    REQUIRE(events.size() > 3);
    CHECK(reports_in(events) == three_reports);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(events[i].contains("prompt_progress"));
      if (is_openai) CHECK(events[i]["choices"] == Json::array());
      const Json& timings = events[i]["timings"];
      CHECK(timings["cache_n"] == 20);
      CHECK(timings["prompt_n"] == three_reports[i][0].get<int>() - 20);
      CHECK(timings["predicted_n"] == 0);
      CHECK((timings["prompt_ms"] == 0) == (i == 0));
    }
    for (const char* without : {"", R"(, "return_progress": false)"}) {
      CHECK(reports_in(read_prompt(server, path, without).events(is_openai)).empty());
    }
    const std::vector<Json> untimed = read_prompt(server, path, R"(, "return_progress": true)").events(is_openai);
    CHECK_FALSE(untimed[0].contains("timings"));
  }
}

TEST_CASE("a prompt whose reading is not reported, or goes back, has reports that ascend to its end") {
  serve::PromptProgress silent(7);
  CHECK(silent.take(false).empty());
  const auto both = silent.take(true);
  REQUIRE(both.size() == 2);
  CHECK((both[0].processed == 0 && both[1].processed == 7));
  CHECK(silent.take(true).empty());

  serve::PromptProgress preempted(10);
  for (const std::size_t read : {0, 4, 0, 3, 6, 9}) preempted.report(read, 9);
  std::vector<std::size_t> processed;
  for (const auto& report : preempted.take(true)) processed.push_back(report.processed);
  CHECK(processed == std::vector<std::size_t>{0, 4, 6, 10});

  serve::PromptProgress cached(10);
  cached.report(9, 9);
  CHECK(cached.take(false).size() == 1);
  CHECK(cached.take(true).size() == 1);
}

TEST_CASE("of several choices, the first one's prompt is reported; a whole answer reports nothing") {
  FakeServer server;
  const auto exchange =
      server.begin("/v1/completions", R"({"prompt": ["a", "b"], "stream": true, "return_progress": true})");
  REQUIRE(server.service->asked.size() == 2);
  CHECK(server.service->asked[0].request.progress);
  CHECK_FALSE(server.service->asked[1].request.progress);
  const auto whole = server.begin("/v1/completions", R"({"prompt": "a", "return_progress": true})");
  CHECK_FALSE(server.service->asked[2].request.progress);
}

TEST_CASE("responses report the prompt in events and have times; messages have neither") {
  CallingServer server;
  for (const std::string path : {"/v1/responses", "/v1/messages"}) {
    CAPTURE(path);
    server.path = path;
    const bool reports = path == "/v1/responses";
    const std::string content =
        reports ? R"("input": "x")" : R"("max_tokens": 9, "messages": [{"role": "user", "content": "x"}])";
    const std::vector<Json> events =
        server
            .answer("{" + content + R"(, "stream": true, "return_progress": true, "timings_per_token": true})",
                    "one two", true)
            .named_events();
    std::size_t timed = 0;
    for (const Json& event : events) {
      const bool has_progress = event.contains("prompt_progress");
      if (has_progress) CHECK(event["type"] == "response.in_progress");
      if (event["type"] == "response.output_text.delta") CHECK(event["timings"]["predicted_n"].is_number());
      timed += event.contains("timings");
    }
    CHECK(reports_in(events).size() == (reports ? 2u : 0u));
    CHECK((timed > 0) == reports);
    if (!reports) continue;
    CHECK(events.back()["type"] == "response.completed");
    CHECK(events.back()["timings"]["predicted_n"] == events.back()["response"]["usage"]["output_tokens"]);
    const Json whole = server.answer("{" + content + R"(, "timings_per_token": true})", "one two").json();
    CHECK(whole["timings"]["predicted_n"] == whole["usage"]["output_tokens"]);
    CHECK_FALSE(server.answer("{" + content + "}", "one two").json().contains("timings"));
  }
}
