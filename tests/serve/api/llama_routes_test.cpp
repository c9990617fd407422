// llama.cpp's routes: their fields, the shape of their answers, and their streams.
#include <catch2/catch.hpp>
#include <cmath>

#include "api/default_fields.hpp"
#include "serve/api/fake_service.hpp"
#include "support/paths.hpp"

using serve::test::FakeOutput;
using serve::test::FakeServer;
using slm::Json;

namespace {

const slm::Tokenizer& tokenizer() {
  static const auto demo = slm::Tokenizer::from(slm::testing::source_path("examples/demo_pair/target"));
  return demo;
}

std::vector<slm::Token> ids(const std::string& text) { return tokenizer().encode(text, false); }

/// The prompt of a text: it begins with the model's token for that.
std::vector<slm::Token> prompt_of(const std::string& text) { return tokenizer().encode(text, true); }

/// The whole answer of a model that says a text.
Json answer(FakeServer& server, const std::string& body, const std::string& text,
            slm::FinishReason reason = slm::FinishReason::length, const std::string& path = "/completion") {
  server.service->asked.clear();
  const auto exchange = server.begin(path, body);
  for (auto& asked : server.service->asked) {
    for (const slm::Token token : ids(text)) asked.say(token);
    asked.end(reason);
  }
  FakeOutput out;
  exchange->poll(out);
  INFO(out.text);
  REQUIRE(out.status == 200);
  return out.json();
}

std::string refused(const std::string& path, const std::string& body, int status = 400) {
  FakeServer server;
  const FakeOutput out = server.ask(path, body);
  INFO(out.text);
  CHECK(out.status == status);
  const Json error = out.json()["error"];
  return error["param"].is_null() ? error["slm_id"].get<std::string>() : error["param"].get<std::string>();
}

}  // namespace

TEST_CASE("a completion has the members of llama.cpp's server") {
  FakeServer server;
  for (const char* path : {"/completion", "/completions", "/completion/"}) {
    const Json said = answer(server, R"({"prompt": "def", "n_predict": 2, "seed": 7, "return_tokens": true})",
                             " main\n", slm::FinishReason::length, path);
    CHECK(said["content"] == " main\n");
    CHECK(said["tokens"] == ids(" main\n"));
    CHECK(said["stop"] == true);
    CHECK(said["stop_type"] == "limit");
    CHECK(said["has_new_line"] == true);
    CHECK(said["truncated"] == false);
    CHECK(said["prompt"] == "<|endoftext|>def");
    CHECK(said["generation_settings"]["n_predict"] == 2);
    CHECK(said["generation_settings"]["seed"] == 7);
    CHECK(said["generation_settings"]["top_k"] == 40);
    CHECK(said["tokens_evaluated"] == prompt_of("def").size());
    CHECK(said["timings"]["predicted_n"] == ids(" main\n").size());
    CHECK(said["timings"]["prompt_n"] == prompt_of("def").size());
    for (const auto& [name, value] : said["timings"].items()) {
      INFO(name);
      CHECK((value.is_number() && value.get<double>() >= 0));
    }
    CHECK(!said.contains("completion_probabilities"));
  }
  const Json plain = answer(server, R"({"prompt": "def", "n_predict": -1})", "x", slm::FinishReason::end_token);
  CHECK(plain["tokens"] == Json::array());
  CHECK(plain["stop_type"] == "eos");
  CHECK(plain["generation_settings"]["n_predict"] == -1);
  CHECK(server.service->asked[0].request.sampling.temperature == 0.8f);
  const Json word = answer(server, R"({"prompt": "def", "stop": ["ma"]})", " main", slm::FinishReason::sink);
  CHECK(word["content"] == " ");
  CHECK(word["stop_type"] == "word");
  CHECK(word["stopping_word"] == "ma");
}

TEST_CASE("prompts are texts, ids, mixtures, objects, or lists of these; several have a list of answers") {
  FakeServer server;
  const auto prompts = [&](const std::string& prompt) {
    const Json said = answer(server, R"({"prompt": )" + prompt + "}", "x");
    std::vector<std::vector<slm::Token>> found;
    for (const auto& asked : server.service->asked) found.push_back(asked.request.prompt);
    CHECK(said.is_array() == (found.size() > 1));
    return found;
  };
  using Prompts = std::vector<std::vector<slm::Token>>;
  CHECK(prompts(R"("def")") == Prompts{prompt_of("def")});
  CHECK(prompts("[5, 6]") == Prompts{{5, 6}});
  std::vector<slm::Token> mixture{5};
  for (const slm::Token token : ids("def")) mixture.push_back(token);
  mixture.push_back(6);
  CHECK(prompts(R"([5, "def", 6])") == Prompts{mixture});
  CHECK(prompts(R"({"prompt_string": "def"})") == Prompts{prompt_of("def")});
  CHECK(prompts(R"([[5, 6], "def", [5, "def", 6], {"content": [{"type": "text", "text": "de"},
                   {"type": "text", "text": "f"}]}])") == Prompts{{5, 6}, prompt_of("def"), mixture, prompt_of("def")});
  for (const char* wrong : {"[]", "5", "[[]]", "{}", "[5, {}]", "[5, [6]]", "[5, 2048]", "[[5, -1]]",
                            R"({"prompt_string": 5})", R"({"content": "x"})", R"({"content": [{"type": "image_url"}]})",
                            R"({"prompt_string": "x", "multimodal_data": ["x"]})"}) {
    CAPTURE(wrong);
    CHECK(refused("/completion", R"({"prompt": )" + std::string(wrong) + "}") == "prompt");
  }
}

TEST_CASE("a stream has an event for each token and a last one with the whole report, and no [DONE]") {
  FakeServer server;
  const auto exchange =
      server.begin("/completion", R"({"prompt": "def", "stream": true, "n_probs": 1, "timings_per_token": true})");
  auto& asked = server.service->asked.at(0);
  CHECK(asked.request.logprobs.top == 1);
  const std::vector<slm::Token> tokens = ids(" main()");
  REQUIRE(tokens.size() > 1);
  for (const slm::Token token : tokens) asked.say(token, false, -0.5, {{token, -0.5}});
  asked.end(slm::FinishReason::length);
  FakeOutput out;
  exchange->poll(out);
  CHECK(out.ended);
  CHECK(out.type == "text/event-stream; charset=utf-8");
  const std::vector<Json> events = out.events(false);
  REQUIRE(events.size() == tokens.size() + 1);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    CHECK(events[i]["stop"] == false);
    CHECK(events[i]["tokens"] == Json{tokens[i]});
    CHECK(events[i]["timings"]["predicted_n"] == i + 1);
    REQUIRE(events[i]["completion_probabilities"].size() == 1);
    const Json& token = events[i]["completion_probabilities"][0];
    CHECK(token["id"] == tokens[i]);
    CHECK(token["logprob"] == -0.5);
    CHECK(token["top_logprobs"][0]["bytes"].is_array());
    text += events[i]["content"];
  }
  CHECK(text == " main()");
  CHECK(events.back()["stop"] == true);
  CHECK(events.back()["content"] == "");
  CHECK(events.back()["tokens_predicted"] == tokens.size());
}

TEST_CASE("probabilities after sampling have no zeros") {
  FakeServer server;
  const auto exchange = server.begin("/completion", R"({"prompt": "def", "n_probs": 3, "post_sampling_probs": true})");
  auto& asked = server.service->asked.at(0);
  CHECK(asked.request.logprobs.sampled);
  CHECK(!asked.request.logprobs.raw);
  const std::vector<slm::TokenLogprob> top{{70, std::log(0.75)}, {71, -INFINITY}};
  slm::GeneratedToken token{.token = 70, .position = 0};
  token.sampled_logprob = std::log(0.75);
  token.sampled_top = top;
  asked.answer->tokens.emplace_back(token);
  asked.end(slm::FinishReason::length);
  FakeOutput out;
  exchange->poll(out);
  const Json said = out.json()["completion_probabilities"][0];
  CHECK(said["prob"].get<double>() == Approx(0.75));
  CHECK(said["top_probs"].size() == 1);
  CHECK(!said.contains("logprob"));
}

TEST_CASE("response_fields keeps what its paths name") {
  FakeServer server;
  const Json said = answer(
      server, R"({"prompt": "def", "response_fields": ["content", "generation_settings/seed", "x", "content/y", ""]})",
      "x");
  CHECK(said.size() == 2);
  CHECK(said["content"] == "x");
  CHECK(said.contains("generation_settings/seed"));
}

TEST_CASE("logit_bias names tokens by ids and texts, with a bias or false") {
  FakeServer server;
  const std::size_t x = static_cast<std::size_t>(ids("x").front());
  for (const std::string bias : {R"([["x", -100]])", R"({"x": -100})", R"([["x", false]])"}) {
    answer(server, R"({"prompt": "def", "logit_bias": )" + bias + "}", "y");
    std::vector<float> logits(2048, 0.0f);
    server.service->asked[0].request.sampling.adjust_logits({}, logits);
    CHECK(logits[x] <= -100);
    CHECK(logits[x + 1] == 0);
  }
  answer(server, R"({"prompt": "def", "logit_bias": [[5, 2.5]]})", "y");
  std::vector<float> logits(2048, 0.0f);
  server.service->asked[0].request.sampling.adjust_logits({}, logits);
  CHECK(logits[5] == 2.5f);
  for (const char* wrong :
       {"5", "[5]", "[[5]]", "[[5, 101]]", "[[5, true]]", "[[2048, 1]]", "[[null, 1]]", "{\"-1\": 1}"}) {
    CAPTURE(wrong);
    CHECK(refused("/completion", R"({"prompt": "x", "logit_bias": )" + std::string(wrong) + "}") == "logit_bias");
  }
}

TEST_CASE("fields of the samplers that slm lacks are rejected by name") {
  for (const char* field : {R"("mirostat": 1)", R"("adaptive_target": 0.5)", R"("dry_multiplier": 1)",
                            R"("lora": [{"id": 0, "scale": 1}])", R"("echo": true)", R"("n_probs": 101)",
                            R"("response_fields": [5])", R"("n_predict": -2)", R"("grammar": "root ::= (")"}) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    CHECK(refused("/completion", R"({"prompt": "x", )" + std::string(field) + "}") == name);
  }
}

TEST_CASE("a text that fills the context is truncated; one that leaves no room is rejected with both numbers") {
  FakeServer server;
  std::string list = "[1";
  for (int i = 1; i < 62; ++i) list += ", 1";
  CHECK(answer(server, R"({"prompt": )" + list + "]}", " main()")["truncated"] == true);
  const FakeOutput out = server.ask("/completion", R"({"prompt": )" + list + ", 1, 1]}");
  CHECK(out.status == 400);
  const Json error = out.json()["error"];
  CHECK(error["type"] == "exceed_context_size_error");
  CHECK(error["n_prompt_tokens"] == 64);
  CHECK(error["n_ctx"] == 64);
  CHECK(error["message"].get<std::string>().find("exceeds the available context size") != std::string::npos);
  CHECK(error["message"].get<std::string>().find("maximum context length is 64 tokens") != std::string::npos);
}

TEST_CASE("infill needs tokens of the tokenizer") {
  CHECK(refused("/infill", R"({"input_prefix": "a", "input_suffix": "b"})", 501) == "serve.no-infill");
  for (const char* file : {"{}", R"({"filename": "ok"})", R"({"filename": 123, "text": "abc"})", "5", "[]"}) {
    CHECK(refused("/infill", R"({"input_prefix": "a", "input_extra": [)" + std::string(file) + "]}") == "input_extra");
  }
}

TEST_CASE("infill marks prefix, suffix and other files by the model's tokens") {
  serve::ServedModel model = serve::test::demo_model();
  Json file = Json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "merges": []}})");
  int id = 4;
  for (const char* name : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}) {
    file["added_tokens"].push_back({{"id", id++},
                                    {"content", name},
                                    {"special", true},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false}});
  }
  model.tokenizer = slm::Tokenizer::parse(file.dump());
  FakeServer server({}, std::move(model));
  server.begin("/infill", R"({"input_prefix": "a", "prompt": "b", "input_suffix": "c", "n_predict": 1})");
  REQUIRE(server.service->asked.size() == 1);
  CHECK(server.service->asked[0].request.prompt == std::vector<slm::Token>{4, 0, 1, 5, 2, 6});
}

TEST_CASE("props, slots and templates describe the server") {
  FakeServer server({.most_running = 3});
  const Json props = server.ask("/props", "", "GET").json();
  CHECK(props["total_slots"] == 3);
  CHECK(props["model_path"] == "somewhere");
  CHECK(props["default_generation_settings"]["n_ctx"] == 64);
  CHECK(props["default_generation_settings"]["params"]["seed"] == -1);
  const Json slots = server.ask("/slots", "", "GET").json();
  CHECK(slots.size() == 3);
  CHECK(slots[0]["is_processing"] == false);
  const Json templated =
      server.ask("/apply-template", R"({"messages": [{"role": "user", "content": "Hello"}]})").json();
  CHECK(templated["prompt"].get<std::string>().find("Hello") != std::string::npos);
  CHECK(refused("/apply-template", "{}") == "messages");
}

TEST_CASE("embeddings have llama.cpp's shape, and documents are ranked by their similarity with the query") {
  FakeServer server;
  const auto embedded = [&](const std::string& path, const std::string& body, std::vector<std::vector<float>> vectors) {
    server.service->asked.clear();
    const auto exchange = server.begin(path, body);
    for (std::size_t i = 0; i < server.service->asked.size(); ++i) {
      server.service->asked[i].answer->embedding = vectors.at(i);
      server.service->asked[i].end(slm::FinishReason::length);
    }
    FakeOutput out;
    exchange->poll(out);
    INFO(out.text);
    REQUIRE(out.status == 200);
    return out.json();
  };
  for (const char* path : {"/embedding", "/embeddings"}) {
    CHECK(embedded(path, R"({"content": ["a", [5, "b"]]})", {{3, 4}, {0, 2}})[1] ==
          Json::parse(R"({"index": 1, "embedding": [[0.0, 1.0]]})"));
  }
  CHECK(embedded("/v1/embeddings", R"({"input": {"content": [{"type": "text", "text": "a"}]}})",
                 {{0, 2}})["data"][0]["embedding"] == Json{0.0, 1.0});
  const std::string documents = R"({"query": "q", "documents": ["a", "b", "c"])";
  const std::vector<std::vector<float>> vectors{{2, 0}, {0, 1}, {5, 0}, {1, 1}};
  const Json ranked = embedded("/v1/rerank", documents + "}", vectors);
  REQUIRE(ranked["results"].size() == 3);
  CHECK(ranked["results"][0] == Json::parse(R"({"index": 1, "relevance_score": 1.0})"));
  CHECK(ranked["results"][2]["index"] == 0);
  CHECK(ranked["usage"]["prompt_tokens"] == ranked["usage"]["total_tokens"]);
  CHECK(embedded("/rerank", documents + R"(, "top_n": 1})", vectors)["results"].size() == 1);
  CHECK(embedded("/rerank", documents + R"(, "top_n": 99})", vectors)["results"].size() == 3);
  const Json list = embedded("/rerank", R"({"query": "q", "texts": ["a", "b", "c"], "return_text": true})", vectors);
  CHECK(list[0] == Json::parse(R"({"index": 1, "score": 1.0, "text": "b"})"));
  for (const char* wrong : {"[]", "123", "[1, 2]", "null"}) {
    CAPTURE(wrong);
    CHECK(refused("/rerank", R"({"query": "q", "documents": )" + std::string(wrong) + "}") == "documents");
  }
  CHECK(refused("/rerank", R"({"documents": ["a"]})") == "query");
}

TEST_CASE("the operator's defaults fill fields that requests leave out, and any name may mean the model") {
  serve::ServedModel model = serve::test::demo_model();
  model.any_name = true;
  FakeServer server({.reading = {.defaults = serve::parse_defaults({"temperature=0", "seed=5", "max_tokens=3"})}},
                    std::move(model));
  const Json said = answer(server, R"({"prompt": "x", "model": "gpt-4o"})", "x");
  CHECK(said["model"] == "demo");
  CHECK(said["generation_settings"]["seed"] == 5);
  CHECK(server.service->asked[0].request.sampling.temperature == 0);
  CHECK(server.service->asked[0].request.sampling.max_new_tokens == 3);
  answer(server, R"({"prompt": "x", "temperature": 1, "n_predict": 2, "seed": null})", "x");
  CHECK(server.service->asked[0].request.sampling.temperature == 1);
  CHECK(server.service->asked[0].request.sampling.max_new_tokens == 2);
  CHECK(server.service->asked[0].request.sampling.seed == 5);
  CHECK(server.ask("/props", "", "GET").json()["default_generation_settings"]["params"]["seed"] == 5);
  for (const std::string wrong : {"temperature", "temperature=x", "nothing=1", "=", "mirostat=1", "temperature=-1"}) {
    CHECK_THROWS_AS(serve::parse_defaults({wrong}), slm::Error);
  }
}
