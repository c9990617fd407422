// Models with recurrent layers, experts or layers of different shapes under every verification rule, and over
// conversations that are edited, rewound and cancelled: the text is that of plain decoding.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/model/load.hpp"
#include "support/outputs.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Each recurrence, with experts and without; attention with a gate, with sinks and beside a recurrence; shared keys
/// and values, and keys as values.
const std::vector<std::string> names{"lfm2moe",    "qwen35-text",    "qwen3next",     "granitehybrid-moe",
                                     "falcon-h1",  "nemotron-h-moe", "gpt-oss-trunc", "qwen3moe",
                                     "gemma4-e2b", "gemma4-moe",     "gemma3n",       "deepseek-v3"};

AnyModel target_of(const std::string& name) { return load(fixture("models/" + name), backend::Cpu{2}); }
AnyModel draft_of(const std::string& name) {
  return load(fixture("models/" + name), backend::Cpu{2}, {.weights = WeightType::bf16});
}

/// exact: the rule's sampled text is the plain one too, not only its distribution.
template <class Rule>
void check_rule(bool exact) {
  for (const std::string& name : names) {
    const AnyModel model = target_of(name), draft = draft_of(name);
    const std::vector<Token> prompt = some_text(3, 12, model.info().vocab);
    std::int64_t accepted = 0;
    for (const float temperature : {0.0f, 0.8f}) {
      if (temperature != 0 && !exact) continue;
      const Sampling sampling{.max_new_tokens = 90, .temperature = temperature, .seed = 7, .ignore_end_tokens = true};
      AutoregressiveDecoder plain{model, Rule{}};
      const auto expected = text_of(plain, prompt, sampling);
      CAPTURE(Rule::name, name, temperature);
      REQUIRE(expected.size() == prompt.size() + 90);
      SpeculativeDecoder own{draft, model, {.draft_tokens = 5}, Rule{}};
      REQUIRE(text_of(own, prompt, sampling, &accepted) == expected);
      SpeculativeDecoder lookup{Lookup{}, model, {.draft_tokens = 4}, Rule{}};
      REQUIRE(text_of(lookup, prompt, sampling) == expected);
      SpeculativeDecoder wrong{prophet(expected, model.info().vocab, 1), model, {.draft_tokens = 3}, Rule{}};
      REQUIRE(text_of(wrong, prompt, sampling) == expected);
    }
    CHECK(accepted > 30);
  }
}

}  // namespace

TEST_CASE("recurrent layers and experts: the text of plain decoding under every rule") {
  check_rule<rule::Coupled>(true);
  check_rule<rule::Match>(true);
  check_rule<rule::Ratio>(false);
  check_rule<rule::Block>(false);
}

TEST_CASE("recurrent layers and experts: requests that continue, edit, rewind or cancel the text before") {
  for (std::size_t number = 0; number < names.size(); ++number) {
    std::uint64_t salt = 0;
    const auto pick = [&](std::uint64_t n) { return mix((number + 1) * 7919 + ++salt) % n; };
    const AnyModel model = target_of(names[number]);
    const auto words = static_cast<std::uint64_t>(model.info().vocab);
    SpeculativeDecoder decoder{draft_of(names[number]), model, {.draft_tokens = 1 + static_cast<int>(pick(6))}};
    std::vector<Token> text = some_text(number, 70, model.info().vocab);
    for (int step = 0; step < 12; ++step) {
      std::vector<Token> prompt = text;
      switch (pick(4)) {
        case 0: prompt.resize(1 + pick(prompt.size())); break;
        case 1: prompt.push_back(static_cast<Token>(pick(words))); break;
        case 2: prompt[pick(prompt.size())] = static_cast<Token>(pick(words)); break;
        default: break;
      }
      const int most = static_cast<int>(1 + pick(30)), patience = pick(3) == 0 ? static_cast<int>(1 + pick(8)) : most;
      if (static_cast<int>(prompt.size()) + most > model.info().context) prompt.resize(40);
      Sampling sampling{.max_new_tokens = most, .temperature = pick(2) ? 0.9f : 0.0f, .seed = pick(100)};
      sampling.ignore_end_tokens = true;
      text = prompt;
      decoder.generate(prompt, sampling, [&](Token token) {
        text.push_back(token);
        return text.size() < prompt.size() + static_cast<std::size_t>(patience);
      });
      sampling.max_new_tokens = std::min(most, patience);
      AutoregressiveDecoder plain{model};
      CAPTURE(names[number], step, prompt.size());
      REQUIRE(text == text_of(plain, prompt, sampling));
    }
  }
}
