// Whole steps of three shapes in four bits with random weights, group 128, embedding and head in F16: tokens/s, GB/s
// and share of the read bandwidth, the cost of verifying n tokens in units of one, prefill, memory beside bf16.
//   build/cpu/bin/bench-int4_decode_step --benchmark_filter='olmo_1b/w4a16/decode'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/bandwidth.hpp"
#include "bench/int4_steps.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/config/model_config.hpp"

namespace {

using namespace slm;
using backend::Int4Activations;
using bench::amd_135m;
using bench::codellama_7b;
using bench::olmo_1b;
using bench::prompt_tokens;
using bench::Shape;
using bench::Steps;

/// One model in memory at a time: the one that was asked for last.
Steps& steps_of(const Shape& shape) {
  static std::unique_ptr<Steps> kept;
  static Shape of{};
  if (kept == nullptr || of.name != shape.name || of.bf16_head != shape.bf16_head) {
    kept.reset();
    kept = std::make_unique<Steps>(shape);
    of = shape;
  }
  return *kept;
}

int all_threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

/// n tokens with all their logits, beside one-token steps in the same run: v(n) = time(n) / time(1).
void decode(benchmark::State& state, Shape shape, Int4Activations activations) {
  const int n = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  Steps& model = steps_of(shape);
  backend::Cpu device{{.threads = threads, .isa = backend::Isa::automatic, .activations = activations}};
  bench::BandwidthProbe probe(threads);
  model.run(device, 0, prompt_tokens, 1);
  model.run(device, prompt_tokens, n, n);
  bench::ProbedSamples samples;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double together = samples.measure(probe, [&] { model.run(device, prompt_tokens, n, n); });
    state.SetIterationTime(together);
    const double start = bench::seconds();
    model.run(device, prompt_tokens, 1, 1);
    ratios.push_back(together / (bench::seconds() - start));
  }
  const double bytes = model.int4_bytes() + model.head_bytes();
  state.counters["tokens/s"] = n / samples.typical();
  state.counters["GB/s"] = bytes / samples.typical() / 1e9;
  state.counters["probe_GB/s"] = samples.probe();
  state.counters["share_%"] = 100 * samples.share(bytes);
  state.counters["v(n)"] = bench::median(ratios);
  state.counters["trusted"] = static_cast<double>(samples.trusted());
  state.counters["MB"] = model.memory() / 1e6;
  state.counters["bf16_MB"] = model.bf16_memory() / 1e6;
}

void prefill(benchmark::State& state, Shape shape, Int4Activations activations) {
  Steps& model = steps_of(shape);
  backend::Cpu device{
      {.threads = static_cast<int>(state.range(0)), .isa = backend::Isa::automatic, .activations = activations}};
  model.run(device, 0, 512, 1);
  std::vector<double> times;
  for (auto _ : state) {
    const double start = bench::seconds();
    model.run(device, 0, 512, 1);
    times.push_back(bench::seconds() - start);
    state.SetIterationTime(times.back());
  }
  state.counters["tokens/s"] = 512 / bench::median(times);
  state.counters["GOP/s"] = 2 * model.weights_in_layers() * 512 / bench::median(times) / 1e9;  // attention not counted
}

void add(const std::string& title, const Shape& shape, Int4Activations activations) {
  auto* steps = benchmark::RegisterBenchmark((title + "/decode").c_str(), decode, shape, activations);
  auto* prompt = benchmark::RegisterBenchmark((title + "/prefill").c_str(), prefill, shape, activations);
  for (const int threads : {1, all_threads()}) {
    for (const int n : {1, 2, 3, 4, 5, 6, 7, 8}) steps->Args({n, threads});
    prompt->Arg(threads);
    if (all_threads() == 1) break;
  }
  const int iterations = shape.layers < 20 ? 25 : 9;
  steps->ArgNames({"rows", "threads"})->UseManualTime()->Iterations(iterations)->Unit(benchmark::kMillisecond);
  prompt->ArgName("threads")->UseManualTime()->Iterations(3)->Unit(benchmark::kMillisecond);
}

const bool registered = [] {
  for (Shape shape : {amd_135m, olmo_1b, codellama_7b}) {
    add(std::string(shape.name) + "/w4a16", shape, Int4Activations::bits16);
    add(std::string(shape.name) + "/w4a8", shape, Int4Activations::bits8);
    shape.bf16_head = true;
    add(std::string(shape.name) + "/w4a16_bf16_head", shape, Int4Activations::bits16);
  }
  return true;
}();

}  // namespace

BENCHMARK_MAIN();
