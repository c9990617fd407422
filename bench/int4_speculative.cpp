// Speculation with four-bit pairs of random weights under a forced acceptance: the draft model does its work and what
// it proposes is the target's own next token with the given probability, else another. Plain decoding beside it in
// turn; both give the same text. The pairs have the shapes of CodeLlama-7B and AMD-Llama-135M, of Qwen3.5-4B and 0.8B,
// and of dense models with the layers and the number of weights of these two.
//   build/cpu/bin/bench-int4_speculative --benchmark_filter='qwen3.5.*draft_length:4/threads:2/activations:8'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bench/device/random_weights.hpp"
#include "bench/samples.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/config/known_models.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/io/families/qwen.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"

namespace {

using namespace slm;

constexpr int new_tokens = 24, cache_tokens = 640;

using Int4Model = Model<Dynamic, AwqInt4<>, backend::Cpu>;

/// A model and its weights.
struct RandomModel {
  RandomModel(const bench::Subject& subject, const backend::Cpu& device)
      : weights(subject, cache_tokens, true),
        model(Dynamic{subject.shape}, weights.checkpoint(), device, {.context = cache_tokens}) {}

  bench::RandomCheckpoint weights;
  Int4Model model;
};

struct Pair {
  std::string name;
  bench::Subject target, draft;
};

bench::Subject four_bits(const ModelConfig& shape, const Family& family, bool tied = false) {
  return {"random", "w4a16", shape, &family, {.tied_embeddings = tied}};
}

/// A model with attention in all layers, and with wider MLPs for the weights of the recurrences and gates.
bench::Subject dense_like(const bench::Subject& hybrid) {
  bench::Subject dense = hybrid;
  dense.family = &families::qwen3;
  dense.shape.mixer = {};
  dense.shape.mixer_layers = dense.shape.no_attention = {};
  dense.shape.attention_gate = false;
  constexpr int group = bench::RandomWeights::group;
  const double fewer = hybrid.layer_products() - dense.layer_products();
  const double of_a_group = 3.0 * dense.shape.layers * dense.shape.hidden * group;
  dense.shape.ffn += group * static_cast<int>(std::lround(fewer / of_a_group));
  return dense;
}

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all = [] {
    const bench::Subject hybrid = four_bits(bench::qwen3_5_4b, families::qwen3_5, true);
    const bench::Subject small = four_bits(bench::qwen3_5_0_8b, families::qwen3_5, true);
    return std::vector<Pair>{
        {"codellama_7b_int4/amd_135m_int4", four_bits(configs::CodeLlama_7B::value, families::llama),
         four_bits(configs::AmdLlama_135M::value, families::llama)},
        {"qwen3.5_4b_int4/qwen3.5_0.8b_int4", hybrid, small},
        {"dense_as_qwen3.5_4b_int4/dense_as_qwen3.5_0.8b_int4", dense_like(hybrid), dense_like(small)}};
  }();
  return all;
}

/// Runs the draft model for every token, but proposes the prescribed token.
struct ForcedDraft {
  Session<Int4Model>* model;
  const std::vector<Token>* text;  // the target's text, with the prompt
  double acceptance;

  void start(std::span<const Token>) { model->truncate(0); }
  void rewind(int) {}
  void propose(std::span<const Token> context, int most, std::vector<Token>& out) {
    // Without the tokens after a rejected one, as drafters do.
    model->truncate(std::min(model->length(), static_cast<int>(context.size()) - 1));
    model->expect_truncation(model->length());
    for (int i = 0; i < most; ++i) {
      const std::size_t at = context.size() + static_cast<std::size_t>(i);
      if (at >= text->size()) return;
      const Token last =
          (i == 0 ? context.back() : out.back()) % model->info().vocab;  // the target's vocabulary is larger
      model->forward(std::span(&last, 1), 1);
      const bool right = static_cast<double>(uniform_at(at)) < acceptance;
      out.push_back(right ? (*text)[at] : ((*text)[at] + 1) % model->info().vocab);
    }
  }

  static float uniform_at(std::size_t at) {
    std::uint64_t state = at * 0x9e3779b97f4a7c15u + 0x1234567;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    return static_cast<float>((state ^ (state >> 31)) >> 40) * 0x1p-24f;
  }
};

void speculative(benchmark::State& state, const Pair& pair) {
  const double acceptance = static_cast<double>(state.range(0)) / 100;
  const int draft_length = static_cast<int>(state.range(1)), threads = static_cast<int>(state.range(2));
  const int bits = static_cast<int>(state.range(3));
  const auto activations = bits == 8 ? backend::Int4Activations::bits8 : backend::Int4Activations::bits16;
  const backend::Cpu device{{.threads = threads, .activations = activations}};
  static std::optional<RandomModel> target, draft;
  static std::tuple<std::string, int, int> made_for;
  if (const std::tuple wanted(pair.name, threads, bits); made_for != wanted) {
    target.reset();
    draft.reset();
    target.emplace(pair.target, device);
    draft.emplace(pair.draft, device);
    made_for = wanted;
  }
  const std::vector<Token> prompt{1, 5, 9, 12, 300, 7, 41, 8};
  const Sampling sampling{.max_new_tokens = new_tokens, .temperature = 0.0f};
  std::vector<Token> text = prompt, found;
  Session drafting(draft->model);
  AutoregressiveDecoder plain(target->model);
  plain.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
  SpeculativeDecoder decoder(ForcedDraft{&drafting, &text, acceptance}, target->model, {.draft_tokens = draft_length});

  std::vector<double> speedups, plain_speeds;
  double accepted = 0, tokens_per_step = 0;
  for (auto _ : state) {
    const Stats one = plain.generate(prompt, sampling, [](Token) {});
    found = prompt;
    const Stats other = decoder.generate(prompt, sampling, [&](Token token) { found.push_back(token); });
    if (found != text) return state.SkipWithError("the text changed");
    state.SetIterationTime(other.decode_seconds());
    speedups.push_back(one.decode_seconds() / other.decode_seconds());
    plain_speeds.push_back(one.tokens_per_second());
    accepted = other.acceptance_rate();
    tokens_per_step = other.tokens_per_target_step();
  }
  state.counters["speedup"] = bench::median(speedups);
  state.counters["plain_tokens/s"] = bench::median(plain_speeds);
  state.counters["accepted/drafted"] = accepted;
  state.counters["tokens/step"] = tokens_per_step;
}

const bool registered = [] {
  const int all = usable_cores();
  for (const Pair& pair : pairs()) {
    auto* run =
        benchmark::RegisterBenchmark(pair.name.c_str(), [&pair](benchmark::State& state) { speculative(state, pair); });
    for (const int threads : {1, all}) {
      for (const int bits : {16, 8}) {
        for (const int draft_length : {2, 4, 6}) run->Args({70, draft_length, threads, bits});
      }
      if (all == 1) break;
    }
    run->ArgNames({"acceptance", "draft_length", "threads", "activations"})
        ->UseManualTime()
        ->Iterations(3)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace

BENCHMARK_MAIN();
