// Decoding with transformers of two layers and random weights, on both backends: text must not depend on the number of
// rows, although rounding could.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "slm/backend/reference/reference.hpp"
#include "slm/backend/select.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "support/outputs.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/statistics.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr int context = 300;

/// A target in fp32, and the same weights with `noise` as a mostly correct draft.
struct Pair {
  TemporaryFolder target, narrow, stranger;

  explicit Pair(ModelConfig shape = tiny_shape, std::uint64_t seed = 11) {
    write_random_checkpoint<float>(target.path(), shape, seed, false, context);
    write_random_checkpoint<bfloat16_t>(narrow.path(), shape, seed, false, context);
    write_random_checkpoint<float>(stranger.path(), shape, seed + 1, false, context);
  }
};

std::vector<Token> random_tokens(std::uint64_t seed, std::size_t count, int vocab = tiny_shape.vocab) {
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<Token>(mix(seed * 131 + i) % static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

/// Dynamic only, to save compile time.
template <Backend B>
AnyModel load_any(const std::filesystem::path& folder, B device, WeightType weights = WeightType::as_stored,
                  std::optional<KvFormat> cache = {}) {
  return load(folder, device, {.weights = weights, .cache_format = cache});
}

std::vector<float> rows_of(View<const float, 2> logits) { return {logits.data, logits.data + logits.size()}; }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Fills everything after the written rows with NaN, to detect reads past the length.
template <class Base>
struct Poisoning : Base {
  using Inner = decltype(std::declval<Base&>().begin(StepPlan{}));
  struct Step : Inner {
    Step(Inner inner, const StepPlan& of) : Inner(std::move(inner)), plan(of) {}

    template <class Matrix>
    void qkv(View<const float, 2> x, Norm norm, const Linear<Matrix>& linear, Rope rope, Heads heads, KvLayer layer,
             View<float, 2> q, QkvShaping shaping = {}) {
      Inner::qkv(x, norm, linear, rope, heads, layer, q, shaping);
      for (const PlanSequence& sequence : plan.sequences) {
        const int end = plan.rows[static_cast<std::size_t>(sequence.first_row + sequence.rows - 1)].position + 1;
        if (end % page_positions == 0) continue;
        std::byte* const page = plan.table(sequence, layer.kind)[static_cast<std::size_t>(end / page_positions)];
        for (const std::int64_t part : {layer.keys, layer.values}) {
          for (int head = 0; head < heads.kv; ++head) {
            auto* const entries = reinterpret_cast<float*>(page + part) + head * page_positions * heads.dim;
            std::fill(entries + end % page_positions * heads.dim, entries + page_positions * heads.dim, std::nanf(""));
          }
        }
      }
    }

    StepPlan plan;
  };

  Step begin(const StepPlan& plan) { return {Base::begin(plan), plan}; }
};

void check_marginals(int texts) {
  ModelConfig shape{.layers = 2, .hidden = 16, .ffn = 16, .heads = 2, .kv_heads = 2, .head_dim = 8, .vocab = 32};
  const Pair pair{shape, 5};
  const std::vector<Token> prompt{1, 2, 3};
  const auto load_one = [](const TemporaryFolder& folder) { return load_any(folder.path(), backend::Cpu{}); };
  // counts[i]: the i-th new token's ids, and pairs of the second and third.
  const auto sample = [&](auto& decoder, std::uint64_t seeds) {
    std::vector<std::vector<std::int64_t>> counts(3, std::vector<std::int64_t>(32));
    counts.emplace_back(32 * 32);
    for (int text = 0; text < texts; ++text) {
      std::size_t place = 0;
      std::size_t before = 0;
      const Sampling sampling{
          .max_new_tokens = 3, .temperature = 0.8f, .seed = seeds + static_cast<std::uint64_t>(text)};
      decoder.generate(prompt, sampling, [&](Token token) {
        const auto id = static_cast<std::size_t>(token);
        ++counts[place][id];
        if (place == 2) ++counts[3][before * 32 + id];
        before = id;
        ++place;
      });
    }
    return counts;
  };
  AutoregressiveDecoder plain{load_one(pair.target)};
  const auto expected = sample(plain, 1);
  const auto check = [&](auto rule) {
    SpeculativeDecoder decoder{load_one(pair.stranger), load_one(pair.target), {.draft_tokens = 2}, rule};
    const auto found = sample(decoder, 1000000);
    for (std::size_t i = 0; i < 4; ++i) {
      CAPTURE(rule.name, i);
      REQUIRE(two_sample_p(found[i], expected[i]) > 1e-6);
    }
  };
  check(rule::Ratio{});
  check(rule::Block{});
  check(rule::Match{});
  // The test can detect another model: its marginals differ.
  AutoregressiveDecoder other{load_one(pair.stranger)};
  REQUIRE(two_sample_p(sample(other, 1)[0], expected[0]) < 1e-6);
}

}  // namespace

TEMPLATE_TEST_CASE("real models: greedy and coupled text equals plain text for K = 1..16", "", backend::Reference,
                   backend::Cpu) {
  const Pair pair;
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::f16}) {
    const auto target = [&] { return load_any(pair.target.path(), TestType{}, weights); };
    AutoregressiveDecoder plain{target()};
    std::int64_t accepted = 0, corrections = 0;
    for (int draft_length = 1; draft_length <= 16; ++draft_length) {
      const auto prompt =
          random_tokens(static_cast<std::uint64_t>(draft_length), 1 + static_cast<std::size_t>(draft_length) * 3);
      const Sampling sampling{.max_new_tokens = 96,
                              .temperature = draft_length % 2 ? 0.0f : 0.7f,
                              .top_p = draft_length % 4 ? 1.0f : 0.9f,
                              .seed = static_cast<std::uint64_t>(draft_length)};
      const auto expected = text_of(plain, prompt, sampling);
      const auto check = [&](auto draft) {
        SpeculativeDecoder decoder{std::move(draft), target(), {.draft_tokens = draft_length}};
        std::vector<Token> text = prompt;
        const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
        CAPTURE(draft_length, static_cast<int>(weights));
        REQUIRE(text == expected);
        REQUIRE(stats.draft_faults == 0);
        accepted += stats.accepted;
        corrections += stats.corrections;
      };
      check(load_any(pair.narrow.path(), TestType{}, WeightType::bf16));
      if (draft_length % 4 == 1) check(load_any(pair.stranger.path(), TestType{}));
      if (draft_length % 4 == 2) check(Lookup{});
    }
    REQUIRE(accepted > 1000);
    REQUIRE(corrections > 10);  // some drafts must be rejected as well
  }
}

TEMPLATE_TEST_CASE("real models: speculative text equals plain text in every format of the cache", "",
                   backend::Reference, backend::Cpu) {
  const Pair pair;
  for (const KvFormat format : kv_formats) {
    const auto target = [&] { return load_any(pair.target.path(), TestType{}, WeightType::f32, format); };
    AutoregressiveDecoder plain{target()};
    std::int64_t accepted = 0, corrections = 0;
    for (const int draft_length : {1, 4, 7, 16}) {
      const auto prompt = random_tokens(static_cast<std::uint64_t>(draft_length), 30);
      const Sampling sampling{.max_new_tokens = 96, .temperature = draft_length % 2 ? 0.0f : 0.7f};
      const KvFormat of_draft = draft_length == 4 ? KvFormat::int8 : format;
      const auto& draft = draft_length == 7 ? pair.stranger : pair.narrow;
      SpeculativeDecoder decoder{load_any(draft.path(), TestType{}, WeightType::as_stored, of_draft),
                                 target(),
                                 {.draft_tokens = draft_length}};
      std::vector<Token> text = prompt;
      const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
      CAPTURE(draft_length, std::string(name_of(format)));
      REQUIRE(text == text_of(plain, prompt, sampling));
      accepted += stats.accepted;
      corrections += stats.corrections;
    }
    REQUIRE(accepted > 100);
    REQUIRE(corrections > 3);
  }
}

TEMPLATE_TEST_CASE("a row's logits have the same bits in a step of 1 to 17 tokens", "", backend::Reference,
                   backend::Cpu) {
  const Pair pair;
  for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::f16}) {
    Session model(load_any(pair.target.path(), TestType{}, weights));
    const auto text = random_tokens(5, 40);
    const std::span<const Token> all{text};
    std::vector<std::vector<float>> single;
    for (std::size_t i = 0; i < text.size(); ++i) single.push_back(rows_of(model.forward(all.subspan(i, 1), 1)));
    for (std::size_t step = 1; step <= 17; ++step) {
      model.truncate(0);
      for (std::size_t first = 0; first < text.size(); first += step) {
        const std::size_t count = std::min(step, text.size() - first);
        const auto rows = rows_of(model.forward(all.subspan(first, count), static_cast<int>(count)));
        const std::size_t width = rows.size() / count;
        for (std::size_t row = 0; row < count; ++row) {
          const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * width);
          CAPTURE(step, first, row);
          REQUIRE(same_bits({begin, begin + static_cast<std::ptrdiff_t>(width)}, single[first + row]));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("real models: a draft equal to the target is never corrected", "", backend::Reference,
                   backend::Cpu) {
  const Pair pair;
  for (const float temperature : {0.0f, 0.8f}) {
    SpeculativeDecoder decoder{
        load_any(pair.target.path(), TestType{}), load_any(pair.target.path(), TestType{}), {.draft_tokens = 5}};
    const Sampling sampling{.max_new_tokens = 120, .temperature = temperature};
    const Stats stats = decoder.generate(random_tokens(1, 9), sampling, [](Token) {});
    REQUIRE(stats.corrections == 0);
    REQUIRE(stats.rounds == 20);
  }
}

TEMPLATE_TEST_CASE("real models: after any history the KV cache equals a new one", "", backend::Reference,
                   backend::Cpu) {
  const Pair pair;
  auto target = load_any(pair.target.path(), TestType{});
  SpeculativeDecoder decoder{load_any(pair.narrow.path(), TestType{}), target, {.draft_tokens = 4}};
  std::vector<Token> text = random_tokens(3, 4);
  for (std::uint64_t step = 0; step < 60; ++step) {
    std::vector<Token> prompt = text;
    switch (mix(step) % 3) {
      case 0: prompt.resize(1 + mix(step + 100) % prompt.size()); break;
      case 1: prompt.push_back(static_cast<Token>(mix(step + 200) % 101)); break;
      default: break;
    }
    if (prompt.size() > 200) prompt.resize(20);
    const Sampling sampling{.max_new_tokens = static_cast<int>(1 + mix(step + 300) % 30),
                            .temperature = mix(step + 400) % 2 ? 0.0f : 0.9f,
                            .seed = step};
    std::size_t patience = mix(step + 500) % 3 ? 1000 : 3;
    text = prompt;
    decoder.generate(prompt, sampling, [&](Token token) {
      text.push_back(token);
      return --patience > 0;
    });
    REQUIRE(decoder.sequence().length() == static_cast<int>(text.size()) - 1);
    Sequence held = decoder.sequence().fork();
    Batch batch;
    batch.add(held, std::span(text).last(1), {.result = RowResult::logits});
    target.forward(batch);
    Session fresh(target);
    CAPTURE(step);
    REQUIRE(same_bits(rows_of(batch.logits(0)), rows_of(fresh.forward(text, 1))));
  }
}

TEMPLATE_TEST_CASE("NaN after the end of the KV cache changes nothing", "", backend::Reference, backend::Cpu) {
  const Pair pair;
  const auto prompt = random_tokens(8, 20);
  const Sampling sampling{.max_new_tokens = 100, .temperature = 0.7f, .seed = 2};
  AutoregressiveDecoder plain{load_any(pair.target.path(), TestType{})};
  const auto expected = text_of(plain, prompt, sampling);
  using Poisoned = Model<Dynamic, Fp32, Poisoning<TestType>>;
  const auto poisoned = [](const std::filesystem::path& folder) {
    auto checkpoint = std::make_shared<const Checkpoint>(folder);
    const Dynamic shape{checkpoint->config()};
    return Poisoned{shape, std::move(checkpoint), {}};
  };
  SpeculativeDecoder decoder{poisoned(pair.stranger.path()), poisoned(pair.target.path()), {.draft_tokens = 6}};
  REQUIRE(text_of(decoder, prompt, sampling) == expected);
  // Rows after a truncation are overwritten by NaN in the next step, so they really exist.
  REQUIRE(text_of(decoder, prompt, sampling) == expected);
}

TEST_CASE("draft and target on different backends and in different precisions exchange only ids") {
  const Pair pair;
  const auto prompt = random_tokens(8, 20);
  const Sampling sampling{.max_new_tokens = 100, .temperature = 0.7f, .seed = 2};
  AutoregressiveDecoder plain{load_any(pair.target.path(), backend::Cpu{})};
  const auto expected = text_of(plain, prompt, sampling);
  const auto check = [&](auto draft_device, auto target_device) {
    std::int64_t target_ids = 0;
    SpeculativeDecoder decoder{
        load_any(pair.narrow.path(), draft_device),
        Watched{load_any(pair.target.path(), target_device),
                [&](const Batch& batch) { target_ids += static_cast<std::int64_t>(batch.items().front().count); }},
        {.draft_tokens = 4}};
    std::vector<Token> text = prompt;
    const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
    REQUIRE(stats.accepted > 20);
    // The target's tokens: the prompt except its last token, then per round the anchor and the drafted ids.
    REQUIRE(target_ids == 19 + stats.rounds + stats.drafted);
    return text;
  };
  REQUIRE(check(backend::Reference{}, backend::Cpu{}) == expected);
  REQUIRE(check(backend::Cpu{}, backend::Cpu{}) == expected);
  // In the other direction the target's rounding differs from the plain Cpu text, but not from its own.
  AutoregressiveDecoder reference{load_any(pair.target.path(), backend::Reference{})};
  REQUIRE(check(backend::Cpu{}, backend::Reference{}) == text_of(reference, prompt, sampling));
}

TEST_CASE("plain and speculative sampling from a transformer give the same marginals") { check_marginals(10000); }

TEST_CASE("the same with 200000 texts", "[.nightly]") { check_marginals(200000); }

TEST_CASE("prompt lookup has the recorded acceptance on a trained model's text") {
  const auto target = test_data("models/tinystories-656k-f32");
  SLM_SKIP_WITHOUT(target, "the trained model TinyStories-656K");
  // On the reference backend, since the instruction set would change some draws. Drafts have the largest length, as in
  // the recording.
  const Lookup lookup({.longest = 4, .shortest = 2});
  SpeculativeDecoder decoder{lookup, load_any(target, backend::Reference{}), {.draft_tokens = 4}};
  std::int64_t evaluated = 0, accepted = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Sampling sampling{.max_new_tokens = 400, .temperature = 0.4f, .seed = seed, .ignore_end_tokens = true};
    const Stats stats = decoder.generate(random_tokens(seed, 8, 2000), sampling, [](Token) {});
    evaluated += stats.evaluated;
    accepted += stats.accepted;
  }
  const double rate = static_cast<double>(accepted) / static_cast<double>(evaluated);
  CAPTURE(rate, evaluated);
  REQUIRE(rate == Approx(0.677).margin(0.02));
}
