// SmolLM2-135M-Instruct from its GGUF file (Q4_1 and Q8_0) against what transformers computes from the same weights,
// dequantized. Skips where the file is not in build/models.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <vector>

#include "slm/decode/perplexity.hpp"
#include "slm/speculative.hpp"
#include "slm/text/chat.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr const char* file_name = "SmolLM2-135M-Instruct.Q4_1.gguf";

Json read_golden_cases() { return Json::parse(std::ifstream(test_data("smollm2/golden_f32.json"))).at("cases"); }

}  // namespace

TEST_CASE("a real model's GGUF file gives the logits of its dequantized weights") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden logits");
  // The blocks' own kernels round activations to 16 bits, which may move logits, here up to 33, by 2e-4 of the largest,
  // all of them in one direction; multiplied out to fp32 the blocks give what fp32 gives.
  const auto [weights, margin, margin_of_sum, relative] = GENERATE(table<WeightType, double, double, double>(
      {{WeightType::as_stored, 6.6e-3, 6.6e-3 * 49152, 1e-3}, {WeightType::f32, 2e-4, 2.5, 1e-4}}));
  Session model(load(path, backend::Cpu{}, {.weights = weights}));
  for (const Json& entry : read_golden_cases()) {
    CAPTURE(entry.at("name").get<std::string>(), margin);
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    model.truncate(0);
    const View<const float, 2> logits = model.forward(ids, 1);
    const float* row = logits.row(0);
    const Json& last = entry.at("last");
    for (const Json& top : last.at("top")) {
      CHECK(row[top[0].get<int>()] == Approx(top[1].get<double>()).margin(margin).epsilon(0));
    }
    double sum = 0, squares = 0;
    std::vector<double> with_signs(last.at("signed").size());
    for (std::uint64_t token = 0; token < 49152; ++token) {
      const double logit = double{row[token]};
      sum += logit;
      squares += logit * logit;
      for (std::size_t k = 0; k < with_signs.size(); ++k) {
        with_signs[k] += (token * 2654435761u) >> (20 + k) & 1 ? -logit : logit;
      }
    }
    CHECK(sum == Approx(last.at("sum").get<double>()).margin(margin_of_sum).epsilon(0));
    CHECK(squares == Approx(last.at("sum_squares").get<double>()).epsilon(relative));
    for (std::size_t k = 0; k < with_signs.size(); ++k) {
      CHECK(with_signs[k] == Approx(last.at("signed")[k].get<double>()).margin(250 * margin).epsilon(0));
    }
  }
}

TEST_CASE("a real model's GGUF file gives the greedy texts of its dequantized weights, plainly and speculatively") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden texts");
  AnyModel model = load(path, backend::Cpu{});
  CHECK(model.info().end_tokens == std::vector<Token>{2, 0});
  const Sampling sampling{.max_new_tokens = 64, .temperature = 0.0f, .ignore_end_tokens = true};
  AutoregressiveDecoder plain{model};
  SpeculativeDecoder speculative{NgramDrafter{}, model, {.draft_tokens = 4}};
  for (const Json& entry : read_golden_cases()) {
    const std::string name = entry.at("name");
    if (name != "cpp" && name != "chat-default" && name != "unicode") continue;
    CAPTURE(name);
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    const auto generate = [&](auto& decoder) {
      std::vector<Token> made;
      decoder.generate(std::vector<Token>(ids), sampling, [&](Token token) { made.push_back(token); });
      return made;
    };
    const auto expected = entry.at("greedy").at("ids").get<std::vector<Token>>();
    CHECK(generate(plain) == expected);
    CHECK(generate(speculative) == expected);
  }
}

TEST_CASE("a real model's GGUF file renders conversations as its chat template does") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden conversations");
  const Tokenizer tokenizer = Tokenizer::from(path);
  CHECK(chat::recognise_model(path) == chat::Template::smollm2);
  int conversations = 0;
  for (const Json& entry : read_golden_cases()) {
    if (!entry.contains("messages")) {
      CHECK((!entry.contains("text") ||
             tokenizer.encode(entry.at("text").get<std::string>()) == entry.at("ids").get<std::vector<Token>>()));
      continue;
    }
    std::vector<chat::Message> messages;
    for (const Json& message : entry.at("messages")) messages.push_back({message.at("role"), message.at("content")});
    CHECK(chat::render(chat::Template::smollm2, messages) == entry.at("rendered").get<std::string>());
    CHECK(chat::encode(tokenizer, chat::Template::smollm2, messages) == entry.at("ids").get<std::vector<Token>>());
    ++conversations;
  }
  CHECK(conversations == 2);
}

TEST_CASE("a real model's GGUF file has the perplexity of its dequantized weights") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/perplexity_f32.json");
  const auto text = test_data("text_wikitext2/valid.txt");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its perplexity");
  SLM_SKIP_WITHOUT(text, "WikiText-2");
  const Json expected = Json::parse(std::ifstream(golden));
  const MappedFile file(text);
  const std::string_view all{reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  const std::vector<Token> tokens = Tokenizer::from(path).encode(all.substr(0, expected.at("text").at("bytes")));
  CHECK(static_cast<int>(tokens.size()) == expected.at("text").at("tokens").get<int>());
  AnyModel model = load(path, backend::Cpu{});
  const Json& result = expected.at("results")[0];
  const Perplexity found = perplexity(model, tokens, {.window = result.at("window")});
  CHECK(found.tokens == result.at("scored_tokens").get<std::int64_t>());
  CHECK(found.mean() == Approx(result.at("mean_negative_log_likelihood").get<double>()).margin(1e-5).epsilon(0));
}
