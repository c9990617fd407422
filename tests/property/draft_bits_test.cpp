// Drafts whose weights are rounded to 4 or 8 bits during loading: close logits, fewer bytes, and the same text.
#include <catch2/catch.hpp>
#include <cmath>
#include <type_traits>
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

/// Root of the mean square difference, relative to that of `exact`.
double difference(const std::vector<float>& exact, const std::vector<float>& other) {
  double sum = 0, all = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    sum += std::pow(double{other[i]} - double{exact[i]}, 2);
    all += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(sum / all);
}

}  // namespace

TEMPLATE_TEST_CASE("fewer bits: close logits and fewer bytes", "", backend::Reference, backend::Cpu) {
  const std::vector<Token> prompt{5, 99, 0, 31, 31, 7, 100, 64, 2, 18, 42};
  for (const bool tied : {false, true}) {
    const TemporaryFolder folder;
    write_random_checkpoint<bfloat16_t>(folder.path(), tiny_shape, 3, tied, context);
    const AnyModel stored = load(folder.path(), TestType{});
    const AnyModel eight = load(folder.path(), TestType{}, {.bits = 8});
    const AnyModel four = load(folder.path(), TestType{}, {.bits = 4});
    if constexpr (std::is_same_v<TestType, backend::Cpu>) {  // Reference holds floats
      CHECK(eight.info().step_bytes * 16 < stored.info().step_bytes * 11);
      CHECK(four.info().step_bytes * 16 < stored.info().step_bytes * 7);
    }
    const std::vector<float> exact = prompt_logits(stored, prompt);
    const double by_eight = difference(exact, prompt_logits(eight, prompt));
    const double by_four = difference(exact, prompt_logits(four, prompt));
    CAPTURE(tied, by_eight, by_four);
    CHECK(by_eight > 0);
    CHECK(by_eight < 0.05);
    CHECK(by_four > by_eight);
    CHECK(by_four < 0.5);
    CHECK(prompt_logits(load(folder.path(), TestType{}, {.head_tokens = 16, .bits = 4}), prompt)[3] ==
          prompt_logits(four, prompt)[3]);
  }
}

TEST_CASE("speculation with a draft of fewer bits gives the plain text, greedy and sampled") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 11, false, context);
  AutoregressiveDecoder plain{load(folder.path(), backend::Cpu{})};
  for (const int bits : {4, 8}) {
    SpeculativeDecoder decoder{
        load(folder.path(), backend::Cpu{}, {.bits = bits}), load(folder.path(), backend::Cpu{}), {.draft_tokens = 4}};
    for (const float temperature : {0.0f, 0.8f}) {
      const Sampling sampling{.max_new_tokens = 80, .temperature = temperature, .seed = 7};
      const std::vector<Token> prompt{1, 90, 17};
      std::vector<Token> expected, text;
      plain.generate(prompt, sampling, [&](Token token) { expected.push_back(token); });
      const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
      CAPTURE(bits, temperature);
      REQUIRE(text == expected);
      REQUIRE(stats.draft_faults == 0);
      REQUIRE(stats.accepted > 10);
    }
  }
}

TEST_CASE("other numbers of bits, and models of one format, are refused") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 11, false, context);
  for (const int bits : {-1, 1, 5, 16}) {
    CHECK_THROWS_WITH(load(folder.path(), backend::Reference{}, {.bits = bits}), Catch::Contains("model.bits"));
  }
  CHECK_THROWS_WITH(detail::make_state<Fp32>(std::make_shared<const Checkpoint>(folder.path()), backend::Reference{},
                                             LoadOptions{.bits = 4}),
                    Catch::Contains("model.bits"));
}
