// What the fields of a request become.
#include <catch2/catch.hpp>
#include <cmath>

#include "serve/api/fake_service.hpp"

using serve::TextRequest;
using slm::Json;

namespace {

const serve::ServedModel& model() {
  static const serve::ServedModel demo = serve::test::demo_model();
  return demo;
}

TextRequest read(const Json& fields, const serve::ReadingOptions& options = {}) {
  Json body{{"prompt", "def"}};
  if (!fields.is_null()) body.update(fields);
  return serve::read_completion(body, model(), options);
}

/// The field that a request is refused for.
std::string refused(const Json& fields, const serve::ReadingOptions& options = {}) {
  try {
    read(fields, options);
  } catch (const serve::Refusal& refusal) {
    CHECK(refusal.status == 400);
    return refusal.param;
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a request without settings has OpenAI's defaults, and a random seed") {
  const TextRequest request = read({});
  const slm::Request choice = request.choice(0, model());
  CHECK(choice.prompt == model().tokenizer.encode("def"));
  CHECK(choice.sampling.max_new_tokens == 16);
  CHECK(choice.sampling.temperature == 1.0f);
  CHECK(choice.sampling.top_p == 1.0f);
  CHECK(choice.sampling.top_k == 0);
  CHECK_FALSE(choice.sampling.adjust_logits);
  CHECK_FALSE(choice.logprobs.any());
  CHECK(read({}).choice(0, model()).sampling.seed != choice.sampling.seed);
}

TEST_CASE("choices draw with seeds that follow each other, and prompts follow each other in n choices each") {
  const TextRequest request = read({{"prompt", {"def", "class"}}, {"n", 2}, {"seed", 41}});
  REQUIRE(request.choices() == 4);
  CHECK(request.choice(0, model()).sampling.seed == 41);
  CHECK(request.choice(1, model()).sampling.seed == 42);
  CHECK(request.choice(2, model()).sampling.seed == 41);
  CHECK(request.choice(1, model()).prompt == model().tokenizer.encode("def"));
  CHECK(request.choice(2, model()).prompt == model().tokenizer.encode("class"));
}

TEST_CASE("an integer may be written with a point; other types and values beyond the range are refused by name") {
  CHECK(read({{"max_tokens", 5.0}}).max_tokens == 5);
  CHECK(read({{"seed", -1}}).sampling.seed == ~std::uint64_t{0});
  for (const Json& value : {Json(5.5), Json("5"), Json(true), Json(1e300), Json(0), Json(-1), Json::array()}) {
    CHECK(refused({{"max_tokens", value}}) == "max_tokens");
  }
  CHECK(refused({{"temperature", 2.01}}) == "temperature");
  CHECK(refused({{"top_p", 0}}) == "top_p");
  CHECK(refused({{"seed", std::uint64_t{1} << 63}}) == "seed");
  CHECK(refused({{"logit_bias", {{"-1", 1}}}}) == "logit_bias");
  CHECK(refused({{"logit_bias", {{"1", nullptr}}}}) == "logit_bias");
  CHECK(refused({{"stop", {std::string(257, 'x')}}}) == "stop");
  CHECK(refused({{"n", 100}, {"prompt", {"a", "b"}}}, {.most_choices = 199}) == "n");
}

TEST_CASE("what would change the answer and is not there is refused by name, and what would not is ignored") {
  for (const char* name : {"suffix", "prompt_logprobs", "guided_json", "bad_words"}) {
    CHECK(refused({{name, "x"}}) == name);
    CHECK_NOTHROW(read({{name, nullptr}}));
  }
  CHECK(refused({{"tools", {1}}}) == "tools");
  CHECK_NOTHROW(read({{"tools", Json::array()}, {"tool_choice", "auto"}}));
  CHECK(refused({{"response_format", {{"type", "json_schema"}}}}) == "response_format");
  CHECK(refused({{"response_format", {{"type", 5}}}}) == "response_format");
  CHECK(refused({{"skip_special_tokens", false}}) == "skip_special_tokens");
  CHECK(refused({{"best_of", 2}}) == "best_of");
  const Json usage_in_each{{"continuous_usage_stats", true}};  // which means nothing by itself
  CHECK_FALSE(read({{"stream", true}, {"stream_options", usage_in_each}}).usage_in_each);
  CHECK_NOTHROW(read({{"best_of", 2}, {"n", 2}, {"user", 1}, {"service_tier", "auto"}}));
  CHECK(refused({{"priority", 3}}) == "priority");
  CHECK(read({{"priority", 3}}, {.priorities = true}).priority == 3);
}

TEST_CASE("a text may be as long as the context has room for") {
  const std::vector<int> prompt(60, 5);
  CHECK(read({{"prompt", prompt}, {"max_tokens", 100}}).choice(0, model()).sampling.max_new_tokens == 4);
  CHECK(refused({{"prompt", std::vector<int>(64, 5)}}) == "prompt");
  CHECK_NOTHROW(read({{"prompt", std::vector<int>(64, 5)}, {"max_tokens", 0}, {"echo", true}}));
  const Json chat{{"messages", {{{"role", "user"}, {"content", "def"}}}}};
  const TextRequest request = serve::read_chat(chat, model(), {});
  const slm::Request choice = request.choice(0, model());
  CHECK(choice.sampling.max_new_tokens == 64 - std::ssize(choice.prompt));
}

TEST_CASE("biases are added to the logits, and end tokens are out of question before min_tokens") {
  const TextRequest request = read({{"logit_bias", {{"7", 2.5}}}, {"min_tokens", 2}, {"stop_token_ids", {9}}});
  const slm::Request choice = request.choice(0, model());
  std::vector<slm::Token> text = choice.prompt;
  std::vector<float> logits(2048, 1.0f);
  text.push_back(1);
  choice.sampling.adjust_logits(text, logits);
  CHECK(logits[7] == 3.5f);
  CHECK(std::isinf(logits[0]));
  CHECK(std::isinf(logits[9]));
  CHECK(logits[8] == 1.0f);
  text.push_back(1);
  std::fill(logits.begin(), logits.end(), 1.0f);
  choice.sampling.adjust_logits(text, logits);
  CHECK(logits[0] == 1.0f);
  CHECK(logits[9] == 1.0f);
}

TEST_CASE("requests with one salt share pages with each other only") {
  const auto group = [](const char* salt) { return read({{"cache_salt", salt}}).choice(0, model()).group; };
  CHECK(read(Json::object()).choice(0, model()).group == 0);
  CHECK(group("") == 0);
  CHECK(group("tenant-1") != 0);
  CHECK(group("tenant-1") == group("tenant-1"));
  CHECK(group("tenant-1") != group("tenant-2"));
  CHECK(refused({{"cache_salt", 3}}) == "cache_salt");
  std::string longest;
  for (int i = 0; i < 256; ++i) longest += "\xc3\xa4";
  CHECK(group(longest.c_str()) != 0);
  CHECK(refused({{"cache_salt", longest + "a"}}) == "cache_salt");
}

TEST_CASE("a chat's messages are texts or parts of text, and max_completion_tokens wins") {
  const auto chat = [](const Json& fields, const Json& message) {
    Json body{{"messages", {message}}};
    if (!fields.is_null()) body.update(fields);
    return serve::read_chat(body, model(), {});
  };
  const Json parts{{"role", "user"},
                   {"content", {{{"type", "text"}, {"text", "de"}}, {{"type", "text"}, {"text", "f"}}}}};
  const TextRequest request = chat({{"max_tokens", 3}, {"max_completion_tokens", 5}, {"logprobs", true}}, parts);
  CHECK(request.max_tokens == 5);
  CHECK(request.logprobs == 0);
  CHECK(request.prompts == chat({}, {{"role", "user"}, {"content", "def"}}).prompts);
  CHECK_THROWS_AS(chat({}, {{"role", "tool"}, {"content", "x"}}), serve::Refusal);
  CHECK_THROWS_AS(chat({}, {{"role", "assistant"}, {"content", "x"}}), serve::Refusal);
  CHECK_THROWS_AS(chat({{"top_logprobs", 1}}, {{"role", "user"}, {"content", "x"}}), serve::Refusal);
  CHECK_NOTHROW(
      serve::read_chat({{"messages", {{{"role", "developer"}, {"content", "be brief"}}, parts}}}, model(), {}));
}
