// Drafts that compute a part of their head: their logits, and that the text does not depend on it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "support/outputs.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr int context = 200;

}  // namespace

TEMPLATE_TEST_CASE(
    "a part of the head gives the bits of the whole head's first logits, others only for tokens of the text", "",
    backend::Reference, backend::Cpu) {
  const std::vector<Token> prompt{5, 99, 0, 31, 31, 7, 100, 64, 2, 18, 42};
  for (const bool tied : {false, true}) {
    const TemporaryFolder folder;
    write_random_checkpoint<float>(folder.path(), tiny_shape, 3, tied, context);
    const std::vector<float> whole = prompt_logits(load(folder.path(), TestType{}), prompt);
    for (const int tokens : {1, 16, 37, tiny_shape.vocab - 1, tiny_shape.vocab}) {
      const AnyModel model = load(folder.path(), TestType{}, {.head_tokens = tokens});
      CHECK(model.info().vocab == tiny_shape.vocab);
      const std::vector<float> part = prompt_logits(model, prompt);
      REQUIRE(part.size() == whole.size());
      for (std::size_t i = 0; i < part.size(); ++i) {
        const int row = static_cast<int>(i) / tiny_shape.vocab, token = static_cast<int>(i) % tiny_shape.vocab;
        const auto read = prompt.begin() + row + 1;  // the tokens up to this row
        CAPTURE(tied, tokens, i);
        if (token < tokens) {
          REQUIRE(part[i] == whole[i]);
        } else if (std::find(prompt.begin(), read, token) != read) {
          REQUIRE(std::abs(part[i] - whole[i]) < 1e-4f * (1 + std::abs(whole[i])));
        } else {
          REQUIRE(part[i] == -std::numeric_limits<float>::infinity());
        }
      }
    }
    const auto bytes = [&](int tokens) {
      return load(folder.path(), TestType{}, {.head_tokens = tokens}).info().step_bytes;
    };
    CHECK(bytes(0) - bytes(16) == (tiny_shape.vocab - 16) * tiny_shape.hidden * 4);
    for (const int wrong : {-1, tiny_shape.vocab + 1}) {
      CHECK_THROWS_WITH(load(folder.path(), TestType{}, {.head_tokens = wrong}), Catch::Contains("model.head-tokens"));
    }
  }
}

TEST_CASE("speculation with a part of the draft's head gives the plain text, greedy and sampled") {
  const TemporaryFolder target, draft;
  write_random_checkpoint<float>(target.path(), tiny_shape, 11, false, context);
  write_random_checkpoint<bfloat16_t>(draft.path(), tiny_shape, 11, false, context);
  AutoregressiveDecoder plain{load(target.path(), backend::Cpu{})};
  std::int64_t accepted = 0, corrections = 0;
  for (const int tokens : {1, 20, 60, tiny_shape.vocab}) {
    for (const float temperature : {0.0f, 0.8f}) {
      const Sampling sampling{.max_new_tokens = 80, .temperature = temperature, .seed = 7};
      const std::vector<Token> prompt{1, 90, 17};
      std::vector<Token> expected, text;
      plain.generate(prompt, sampling, [&](Token token) { expected.push_back(token); });
      SpeculativeDecoder decoder{load(draft.path(), backend::Cpu{}, {.head_tokens = tokens}),
                                 load(target.path(), backend::Cpu{}),
                                 {.draft_tokens = 4}};
      const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
      CAPTURE(tokens, temperature);
      REQUIRE(text == expected);
      REQUIRE(stats.draft_faults == 0);
      REQUIRE(stats.drafted > 0);
      accepted += stats.accepted;
      corrections += stats.corrections;
    }
  }
  REQUIRE(accepted > 50);
  REQUIRE(corrections > 50);
}
