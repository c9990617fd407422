// One AMD-Llama-135M-shaped model with random bf16 weights: load time, tokens/s and share of the read bandwidth, the
// cost of verifying n tokens in units of one, and prefill.
//   build/cpu/bin/bench-decode_step --benchmark_filter=decode
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "bench/bandwidth.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/config/known_models.hpp"
#include "slm/model/model.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

namespace {

using namespace slm;
using Shape = configs::AmdLlama_135M;
using BenchModel = Model<Shape, Bf16, backend::Cpu>;

constexpr int prompt_tokens = 64;

const std::filesystem::path& folder() {
  static const testing::TemporaryFolder temporary;
  static const bool written = [] {
    testing::write_random_checkpoint<bfloat16_t>(temporary.path(), Shape::value, 1, false, 2048);
    return true;
  }();
  static_cast<void>(written);
  return temporary.path();
}

std::vector<Token> some_tokens(int count) {
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i * 7919 % 32000);
  return tokens;
}

int all_threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

void load(benchmark::State& state) {
  for (auto _ : state) {
    const double start = bench::seconds();
    const BenchModel model = BenchModel::load(folder(), backend::Cpu{});
    state.SetIterationTime(bench::seconds() - start);
    benchmark::DoNotOptimize(model.length());
  }
}

/// Extends by n tokens with all their logits, beside one-token steps in the same run: v(n) = time(n) / time(1).
void decode(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  BenchModel model = BenchModel::load(folder(), backend::Cpu{threads});
  bench::BandwidthProbe probe(threads);
  const std::vector<Token> tokens = some_tokens(prompt_tokens + n);
  const std::span<const Token> all(tokens);
  model.extend(all.first(prompt_tokens), 0);
  const auto step = [&](int count) {
    model.extend(all.subspan(prompt_tokens, static_cast<std::size_t>(count)), count);
    model.truncate(prompt_tokens);
  };
  step(n);
  bench::ProbedSamples samples;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double together = samples.measure(probe, [&] { step(n); });
    state.SetIterationTime(together);
    const double start = bench::seconds();
    step(1);
    ratios.push_back(together / (bench::seconds() - start));
  }
  const double bytes = static_cast<double>(model.info().step_bytes);
  state.counters["tokens/s"] = n / samples.typical();
  state.counters["GB/s"] = bytes / samples.typical() / 1e9;
  state.counters["probe_GB/s"] = samples.probe();
  state.counters["share_%"] = 100 * samples.share(bytes);
  state.counters["v(n)"] = bench::median(ratios);
  state.counters["trusted"] = static_cast<double>(samples.trusted());
}

void prefill(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  BenchModel model = BenchModel::load(folder(), backend::Cpu{threads});
  const std::vector<Token> tokens = some_tokens(512);
  std::vector<double> times;
  for (auto _ : state) {
    model.truncate(0);
    const double start = bench::seconds();
    model.extend(tokens, 1);
    times.push_back(bench::seconds() - start);
    state.SetIterationTime(times.back());
  }
  const ModelConfig shape = Shape::value;
  const double in_layers = static_cast<double>(shape.layers) * shape.hidden *
                           (static_cast<double>(shape.heads + 2 * shape.kv_heads) * shape.head_dim +
                            static_cast<double>(shape.heads) * shape.head_dim + 3.0 * shape.ffn);
  state.counters["tokens/s"] = 512 / bench::median(times);
  state.counters["GFLOP/s"] = 2 * in_layers * 512 / bench::median(times) / 1e9;  // attention not counted
}

void decode_arguments(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, all_threads()}) {
    for (int n = 1; n <= 9; ++n) bench->Args({n, threads});
    if (all_threads() == 1) break;
  }
}

BENCHMARK(load)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK(decode)
    ->ArgNames({"rows", "threads"})
    ->Apply(decode_arguments)
    ->UseManualTime()
    ->Iterations(25)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(prefill)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(all_threads())
    ->UseManualTime()
    ->Iterations(7)
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
