// The embedded pair has the results of float64 arithmetic on its weights, and speculation with it is faster and changes
// nothing.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "slm/backend/reference/reference.hpp"
#include "slm/decode/perplexity.hpp"
#include "slm/io/json.hpp"
#include "slm/speculative.hpp"
#include "support/paths.hpp"

using namespace slm;
using slm::testing::demo_pair;

namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the pair agrees with its float64 reference") {
  const Tokenizer tokenizer = Tokenizer::from(demo_pair("target"));
  const Json parity = Json::parse(read_text(demo_pair("parity.json")));
  Session target(load(demo_pair("target")));
  Session draft(load(demo_pair("draft")));
  AutoregressiveDecoder decoder{load(demo_pair("target"))};
  REQUIRE(parity.at("cases").size() >= 4);
  for (const Json& golden : parity.at("cases")) {
    const auto prompt = golden.at("ids").get<std::vector<Token>>();
    CHECK(tokenizer.encode(golden.at("prompt").get<std::string>()) == prompt);
    for (const auto& [name, model] : {std::pair{"target", &target}, std::pair{"draft", &draft}}) {
      model->truncate(0);
      const auto logits = model->forward(prompt, 1);
      const auto ids = golden.at(name).at("ids").get<std::vector<Token>>();
      const auto expected = golden.at(name).at("logits").get<std::vector<double>>();
      REQUIRE(ids.size() == expected.size());
      for (std::size_t i = 0; i < ids.size(); ++i) CHECK(logits(0, ids[i]) == Approx(expected[i]).margin(1e-4));
    }
    std::vector<Token> continuation;
    decoder.generate(prompt, Sampling{.max_new_tokens = parity.at("new_tokens").get<int>(), .temperature = 0.0f},
                     [&](Token token) { continuation.push_back(token); });
    CHECK(continuation == golden.at("continuation").get<std::vector<Token>>());
  }
}

TEST_CASE("acceptance of the pair equals the recorded one") {
  const Tokenizer tokenizer = Tokenizer::from(demo_pair("target"));
  AutoregressiveDecoder plain{load(demo_pair("target"))};
  SpeculativeDecoder speculative{load(demo_pair("draft")), load(demo_pair("target")), {.draft_tokens = 4}};
  std::int64_t drafted = 0, accepted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(demo_pair("prompts"))) {
    const auto prompt = tokenizer.encode(read_text(entry.path()));
    const Sampling sampling{.max_new_tokens = 128, .temperature = 0.0f};
    std::vector<Token> expected, found;
    plain.generate(prompt, sampling, [&](Token token) { expected.push_back(token); });
    const Stats stats = speculative.generate(prompt, sampling, [&](Token token) { found.push_back(token); });
    CHECK(found == expected);
    drafted += stats.drafted;
    accepted += stats.accepted;
  }
  CHECK(static_cast<double>(accepted) / static_cast<double>(drafted) == Approx(0.793).margin(0.02));
}

TEST_CASE("the 4-bit target predicts almost as well, on both backends, and speculation with it changes nothing") {
  const Tokenizer tokenizer = Tokenizer::from(demo_pair("target-int4"));
  std::vector<Token> tokens = tokenizer.encode(read_text(demo_pair("measure.py")));
  tokens.resize(1500);
  AnyModel target = load(demo_pair("target")), int4 = load(demo_pair("target-int4"));
  AnyModel reference = load(demo_pair("target-int4"), backend::Reference{});
  const double before = perplexity(target, tokens, {.window = 256}).mean();
  const double after = perplexity(int4, tokens, {.window = 256}).mean();
  CHECK(after - before < 0.03);
  CHECK(after - before > 0.0005);  // it is another model
  CHECK(perplexity(reference, tokens, {.window = 256}).mean() == Approx(after).margin(1e-4));
  CHECK(int4.info().step_bytes < 0.4 * double(target.info().step_bytes));

  AutoregressiveDecoder plain{load(demo_pair("target-int4"))};
  SpeculativeDecoder speculative{load(demo_pair("draft")), load(demo_pair("target-int4")), {.draft_tokens = 4}};
  for (const char* prompt : {"def read_config(path):", "class Stack:\n    def push(self, item):"}) {
    const auto ids = tokenizer.encode(prompt);
    for (const float temperature : {0.0f, 0.8f}) {
      const Sampling sampling{.max_new_tokens = 64, .temperature = temperature, .seed = 3};
      std::vector<Token> one, other;
      plain.generate(ids, sampling, [&](Token token) { one.push_back(token); });
      const Stats stats = speculative.generate(ids, sampling, [&](Token token) { other.push_back(token); });
      CHECK(one == other);
      CHECK(stats.accepted > 0);
    }
  }
}
