// The effects of the fields of a request.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>

#include "api/logit_edits.hpp"
#include "serve/api/fake_service.hpp"
#include "slm/io/json.hpp"
#include "support/paths.hpp"

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
  CHECK(read({{"top_p", 0}}).sampling.top_p > 0);  // the smallest nucleus: the most likely token
  CHECK(refused({{"top_p", -0.1}}) == "top_p");
  CHECK(refused({{"seed", std::uint64_t{1} << 63}}) == "seed");
  CHECK(refused({{"logit_bias", {{"-1", 1}}}}) == "logit_bias");
  CHECK(refused({{"logit_bias", {{"1", nullptr}}}}) == "logit_bias");
  CHECK(refused({{"stop", {std::string(257, 'x')}}}) == "stop");
  CHECK(refused({{"n", 100}, {"prompt", {"a", "b"}}}, {.most_choices = 199}) == "n");
}

TEST_CASE("what would change the answer and is not there is refused by name, and what would not is taken") {
  CHECK(refused({{"tools", {1}}}) == "tools");
  CHECK_NOTHROW(read({{"tools", Json::array()}, {"tool_choice", "auto"}}));
  CHECK(refused({{"skip_special_tokens", false}}) == "skip_special_tokens");
  CHECK(refused({{"best_of", 2}}) == "best_of");
  const Json usage_in_each{{"continuous_usage_stats", true}};  // which means nothing by itself
  CHECK_FALSE(read({{"stream", true}, {"stream_options", usage_in_each}}).usage_in_each);
  CHECK_NOTHROW(read({{"best_of", 2}, {"n", 2}, {"user", 1}, {"service_tier", "auto"}}));
  CHECK(refused({{"priority", 3}}) == "priority");
  CHECK(read({{"priority", 3}}, {.priorities = true}).priority == 3);
}

TEST_CASE("the table has each field once for a route, and decides what a request may say") {
  const auto refusal = [](const serve::FieldRow& row, serve::FieldRoute route, const Json& value) -> std::string {
    Json body{{std::string(row.name), value}};
    try {
      if (!serve::check_fields(body, route, true).empty()) return "unknown";
    } catch (const serve::Refusal& refused) {
      CHECK(refused.status == 400);
      return refused.param;
    }
    const bool absent = !body.contains(std::string(row.name));
    return absent ? "absent" : "taken";
  };
  for (const serve::FieldRow& row : serve::field_table()) {
    for (unsigned bit = serve::on_completions; bit <= serve::on_responses; bit *= 2) {
      const auto route = static_cast<serve::FieldRoute>(bit);
      if ((row.routes & route) == 0) continue;
      INFO(row.name << " on the route " << bit);
      CHECK(serve::find_field(row.name, route) == &row);
      CHECK_FALSE(row.text.empty());
      const bool hint = row.use == serve::FieldUse::hint;
      CHECK(refusal(row, route, nullptr) == (hint ? "taken" : "absent"));
      for (const Json& neutral : Json::parse(row.neutral)) CHECK(refusal(row, route, neutral) == "absent");
      const Json other{{"another", "value"}};
      if (hint) CHECK(refusal(row, route, other) == "taken");
      if (row.use == serve::FieldUse::refused) {
        for (const Json& value : {other, Json("x"), Json(7.25)}) CHECK(refusal(row, route, value) == row.name);
      }
      if (row.use != serve::FieldUse::followed || row.type == serve::FieldType::any) continue;
      for (const Json& value : {other, Json("x"), Json(7.25), Json(true), Json{1}}) {
        const bool fits = (row.type == serve::FieldType::object && value.is_object()) ||
                          (row.type == serve::FieldType::string && value.is_string()) ||
                          (row.type == serve::FieldType::boolean && value.is_boolean()) ||
                          (row.type == serve::FieldType::list && value.is_array()) ||
                          (row.type == serve::FieldType::number && value.is_number() && row.most >= 7.25);
        CHECK(refusal(row, route, value) == (fits ? "taken" : std::string(row.name)));
      }
      if (row.type != serve::FieldType::integer && row.type != serve::FieldType::number) continue;
      if (std::isinf(row.least)) continue;
      CHECK(refusal(row, route, row.least) == (Json::parse(row.neutral) == Json{row.least} ? "absent" : "taken"));
      CHECK(refusal(row, route, row.most) == "taken");
      CHECK(refusal(row, route, row.least - 1) == row.name);
      CHECK(refusal(row, route, row.most + 1) == row.name);
    }
  }
}

TEST_CASE("APIs whose requests become chats know every field of a chat") {
  for (const serve::FieldRow& row : serve::field_table()) {
    if ((row.routes & serve::on_chat) == 0) continue;
    INFO(row.name);
    CHECK(serve::find_field(row.name, serve::on_messages) != nullptr);
    CHECK(serve::find_field(row.name, serve::on_responses) != nullptr);
  }
}

TEST_CASE("the reference lists the table of fields") {
  std::ifstream file(slm::testing::source_path("docs/reference/request-fields.md"));
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  INFO(serve::field_listing());
  CHECK(page.ends_with("\n" + serve::field_listing()));
}

TEST_CASE("fields that would change the answer in other servers are refused, in their harmless forms they are taken") {
  for (const char* name : {"regex",
                           "ebnf",
                           "repeat_penalty",
                           "repeat_last_n",
                           "mirostat",
                           "mirostat_tau",
                           "dynatemp_range",
                           "typical_p",
                           "typical",
                           "tfs_z",
                           "xtc_probability",
                           "dry_multiplier",
                           "top_n_sigma",
                           "samplers",
                           "n_probs",
                           "t_max_predict_ms",
                           "lora",
                           "image_data",
                           "reasoning_format",
                           "post_sampling_probs",
                           "return_tokens",
                           "structural_tag",
                           "chat_template",
                           "detokenize",
                           "min_new_tokens",
                           "max_new_tokens",
                           "no_stop_trim",
                           "stop_regex",
                           "custom_logit_processor",
                           "lora_path",
                           "separate_reasoning",
                           "sampling_seed",
                           "watermark",
                           "truncate",
                           "adapter_id",
                           "num_beams",
                           "no_repeat_ngram_size",
                           "suffix",
                           "prompt_logprobs",
                           "bad_words",
                           "max_completion_tokens"}) {
    INFO(name);
    CHECK(refused({{name, 11}}) == name);
    CHECK_NOTHROW(read({{name, nullptr}}));
  }
  const Json harmless[] = {
      {{"stop", ""}},
      {{"stop", {""}}},
      {{"suffix", ""}},
      {{"response_format", Json::object()}},
      {{"logit_bias", {}}},
      {{"audio", Json::object()}},
      {{"lora", Json::array()}},
      {{"repeat_penalty", 1.0}},
      {{"mirostat", 0}},
      {{"xtc_probability", 0}},
      {{"bad_words", Json::array()}},
      {{"allowed_token_ids", Json::array()}},
      {{"structured_outputs", {{"json", nullptr}}}},
      {{"response_format", {{"type", "text"}, {"json_schema", nullptr}}}},
  };
  for (const Json& fields : harmless) {
    INFO(fields.dump());
    CHECK(refused(fields) == "nothing");
  }
  CHECK(read({{"stop", {"", "x"}}}).stops == std::vector<std::string>{"x"});
  CHECK(refused({{"tools", {{{"type", "function"}}}}, {"tool_choice", "auto"}}) == "tools");
}

TEST_CASE("unknown fields are named, and rejected by a strict server") {
  const TextRequest request = read({{"temprature", 0}, {"a\r\nb", 1}, {"user", "me"}});
  CHECK(request.ignored == std::vector<std::string>{"a%0D%0Ab", "temprature"});
  CHECK(serve::ignored_header(request.ignored) == serve::HttpHeaders{{"X-Slm-Ignored-Fields", "a%0D%0Ab, temprature"}});
  CHECK(serve::ignored_header({}).empty());
  CHECK(refused({{"temprature", 0}}, {.strict_fields = true}) == "temprature");
  CHECK(refused({{"temperature", 0}, {"user", "me"}}, {.strict_fields = true}) == "nothing");
}

TEST_CASE("the settings that a model's authors suggest hold where a request names none") {
  serve::ServedModel suggesting = serve::test::demo_model();
  suggesting.suggested = {.temperature = 0.5f, .top_k = 1, .repetition_penalty = 1.25f};
  const auto sampling = [&](Json fields) {
    fields["prompt"] = "def";
    return serve::read_completion(fields, suggesting, {}).sampling;
  };
  const slm::Sampling suggested = sampling(Json::object());
  CHECK(suggested.temperature == 0.5f);
  CHECK(suggested.top_k == 1);
  CHECK(suggested.top_p == 1.0f);
  CHECK(suggested.repetition_penalty == 1.25f);
  const slm::Sampling named = sampling({{"temperature", 1.5}, {"top_k", 0}});
  CHECK(named.temperature == 1.5f);
  CHECK(named.top_k == 0);
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
  CHECK(logits[0] == serve::banned_logit);  // finite: a grammar may permit nothing else
  CHECK(logits[9] == serve::banned_logit);
  CHECK(logits[8] == 1.0f);
  text.push_back(1);
  std::fill(logits.begin(), logits.end(), 1.0f);
  choice.sampling.adjust_logits(text, logits);
  CHECK(logits[0] == 1.0f);
  CHECK(logits[9] == 1.0f);
}

TEST_CASE("requests with one salt share pages with each other only") {
  const auto tenant = [](const char* salt) { return read({{"cache_salt", salt}}).choice(0, model()).tenant; };
  CHECK(read(Json::object()).choice(0, model()).tenant == 0);
  CHECK(tenant("") == 0);
  CHECK(tenant("tenant-1") != 0);
  CHECK(tenant("tenant-1") == tenant("tenant-1"));
  CHECK(tenant("tenant-1") != tenant("tenant-2"));
  CHECK(refused({{"cache_salt", 3}}) == "cache_salt");
  std::string longest;
  for (int i = 0; i < 256; ++i) longest += "\xc3\xa4";
  CHECK(tenant(longest.c_str()) != 0);
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
  CHECK(request.prompts == chat({}, {{"role", "user"}, {"content", "de\nf"}}).prompts);
  CHECK_THROWS_AS(chat({}, {{"role", "function"}, {"content", "x"}}), serve::Refusal);
  CHECK_THROWS_AS(chat({}, {{"role", "user"}, {"content", Json::array()}}), serve::Refusal);
  CHECK_THROWS_AS(chat({}, {{"role", "user"}, {"content", nullptr}}), serve::Refusal);
  CHECK_THROWS_AS(chat({}, {{"role", "user"}, {"content", {{{"type", "text"}, {"text", nullptr}}}}}), serve::Refusal);
  CHECK_THROWS_AS(chat({{"top_logprobs", 1}}, {{"role", "user"}, {"content", "x"}}), serve::Refusal);
  CHECK_NOTHROW(
      serve::read_chat({{"messages", {{{"role", "developer"}, {"content", "be brief"}}, parts}}}, model(), {}));
}

TEST_CASE("options of a request are variables of the chat template") {
  serve::ServedModel qwen = serve::test::demo_model();
  Json file = slm::read_json_object(slm::testing::source_path("tests/fixtures/tokenizers/qwen2.json"));
  for (const char* marker : {"<|im_start|>", "<|im_end|>", "<think>", "</think>"}) {
    const bool there = slm::Tokenizer::parse(file.dump()).token(marker).has_value();
    if (there) continue;
    file["added_tokens"].push_back({{"id", slm::Tokenizer::parse(file.dump()).vocab()},
                                    {"content", marker},
                                    {"special", true},
                                    {"normalized", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"single_word", false}});
  }
  qwen.tokenizer = slm::Tokenizer::parse(file.dump());
  qwen.info.vocab = qwen.tokenizer.vocab();
  qwen.chat = cli::ChatFormat{.form = slm::ChatTemplate::from({}, "qwen-3")};
  const auto prompt = [&](const serve::ServedModel& model, const Json& options, const Json& more = {}) {
    Json body{{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"chat_template_kwargs", options}};
    if (!more.is_null()) body.update(more);
    return serve::read_chat(body, model, {}).prompts[0];
  };
  const auto thinking = prompt(qwen, {{"enable_thinking", true}});
  CHECK(prompt(qwen, nullptr) == thinking);
  CHECK(prompt(qwen, Json::object()) == thinking);
  CHECK(prompt(qwen, {{"enable_thinking", false}}).size() > thinking.size());
  CHECK_THROWS_AS(prompt(qwen, {{"enable_thinking", 0}}), serve::Refusal);
  CHECK(prompt(qwen, {{"date_string", "1 May 2025"}}) == thinking);
  CHECK(prompt(model(), {{"enable_thinking", false}}) == prompt(model(), nullptr));
  CHECK(prompt(model(), {{"enable_thinking", nullptr}}) == prompt(model(), nullptr));
  CHECK(prompt(qwen, nullptr, {{"enable_thinking", false}}) == prompt(qwen, {{"enable_thinking", false}}));
  CHECK(prompt(qwen, nullptr, {{"reasoning_effort", "none"}}) == prompt(qwen, {{"enable_thinking", false}}));
  CHECK(prompt(qwen, nullptr, {{"reasoning_effort", "high"}}) == thinking);
  CHECK(prompt(qwen, nullptr, {{"add_generation_prompt", false}}).size() < thinking.size());
  CHECK(prompt(qwen, nullptr, {{"continue_final_message", true}}).size() < thinking.size());
  for (const Json& more : {Json{{"chat_template", "{{ x }}"}}, Json{{"enable_thinking", "no"}},
                           Json{{"add_generation_prompt", true}, {"continue_final_message", true}}}) {
    CHECK_THROWS_AS(prompt(qwen, nullptr, more), serve::Refusal);
  }
  qwen.chat->form = slm::ChatTemplate::parse("line one\n{{ raise_exception('no ' + messages[0].role) }}");
  try {
    prompt(qwen, nullptr);
    FAIL("no error");
  } catch (const serve::Refusal& refusal) {
    CHECK(refusal.status == 400);
    CHECK_THAT(refusal.what(), Catch::Matchers::Contains("line 2, column 4: it refuses: no user"));
  }
}

TEST_CASE("a chat may begin and end with any message, and lists of tool calls may be empty") {
  const auto chat = [](const Json& messages) {
    return serve::read_chat({{"messages", messages}}, model(), {}).prompts[0];
  };
  const Json user{{"role", "user"}, {"content", "def"}}, system{{"role", "system"}, {"content", "be brief"}};
  const Json assistant{{"role", "assistant"}, {"content", "x"}, {"tool_calls", Json::array()}};
  CHECK(chat(Json::array({system})) == model().tokenizer.encode("be brief\n"));
  CHECK(chat(Json::array({user, system})) == model().tokenizer.encode("def\nbe brief\n"));
  CHECK(chat(Json::array({user, assistant})) == model().tokenizer.encode("def\nx\n"));
  Json calling = assistant;
  calling["content"] = nullptr;
  calling["tool_calls"] = {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}};
  CHECK(chat(Json::array({user, calling, user})) == model().tokenizer.encode("def\n\ndef\n"));
  calling["tool_calls"][0]["function"]["arguments"] = "{";
  CHECK_THROWS_AS(chat(Json::array({user, calling, user})), serve::Refusal);
  Json thinking = assistant;
  thinking["reasoning_content"] = "so";
  CHECK(chat(Json::array({user, thinking, user})) == chat(Json::array({user, assistant, user})));
  CHECK(chat(Json::array({user, thinking})) == model().tokenizer.encode("def\nx\n"));
}

TEST_CASE("templates see the names of objects in the order of the request") {
  serve::ServedModel shown = model();
  shown.info.context = 4096;
  shown.chat->form = slm::ChatTemplate::parse("{{ [messages, x, documents]|tojson }}");
  const std::string message =
      R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"z": [1, {"b": 1,)"
      R"( "a": "},\\\""}], "a": 2.0}}}]})";
  const std::string documents = R"([{"title": "t", "body": "b"}])", x = R"({"z": {"c": 1, "b": {}}, "a": []})";
  serve::HttpRequest request;
  request.body = R"({"documents": )" + documents + R"(,"mess\u0061ges":[)" + message +
                 R"( ] , "chat_template_kwargs" : {"x":)" + x + R"(}, "add_generation_prompt": false})";
  const auto prompt = serve::read_chat(serve::parse_body(request), shown, {}, request.body).prompts[0];
  CHECK(shown.tokenizer.decode(prompt, false) == "[[" + message + "], " + x + ", " + documents + "]");
  request.body.insert(0, "\xEF\xBB\xBF");
  CHECK(serve::read_chat(serve::parse_body(request), shown, {}, request.body).prompts[0] == prompt);
}
