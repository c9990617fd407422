// Products of weights and a few or many rows of activations, per format: time, GB/s of weights, share of the bandwidth
// that a vector sum reaches beside each sample.
//   build/cpu/bin/bench-matmul --benchmark_filter=bf16
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/bandwidth.hpp"
#include "slm/backend/cpu/cpu.hpp"

namespace {

using namespace slm;

constexpr int in = 768, out = 2048;

/// Enough matrices that none is still in a cache when its turn comes again.
template <class Format>
struct Weights {
  using Element = typename Format::Element;
  static constexpr std::size_t size = std::size_t{in} * out;
  static constexpr std::size_t count = (std::size_t{256} << 20) / (size * sizeof(Element));

  Weights() : elements(size * count) {
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      elements.data()[i] = from_float<Element>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
    backend::Cpu device{1};
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor tensor{"w",
                          Format::dtype,
                          {out, in},
                          reinterpret_cast<const std::byte*>(elements.data() + i * size),
                          size * sizeof(Element)};
      matrices.push_back(device.pack<Format>(std::span<const Tensor>(&tensor, 1)));
    }
  }

  backend::PageBuffer<Element> elements;
  std::vector<backend::Cpu::Matrix<Format>> matrices;
};

int all_threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

template <class Format>
void matmul(benchmark::State& state) {
  static Weights<Format> weights;
  const int rows = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  const std::size_t used =
      rows <= 16 ? weights.count : std::max<std::size_t>(1, weights.count / static_cast<std::size_t>(rows));
  backend::Cpu device{threads};
  bench::BandwidthProbe probe(threads);
  std::vector<float> x(static_cast<std::size_t>(rows * in), 0.5f), y(static_cast<std::size_t>(rows * out));
  const auto run = [&] {
    for (std::size_t i = 0; i < used; ++i) {
      device.project(View<const float, 2>{x.data(), rows, in}, weights.matrices[i], nullptr,
                     View<float, 2>{y.data(), rows, out});
    }
  };
  run();
  bench::ProbedSamples samples;
  for (auto _ : state) state.SetIterationTime(samples.measure(probe, run));
  const double bytes = static_cast<double>(weights.size * used * sizeof(typename Format::Element));
  const double multiplies = static_cast<double>(weights.size * used) * rows;
  state.counters["us_per_matrix"] = samples.typical() / static_cast<double>(used) * 1e6;
  state.counters["GB/s"] = bytes / samples.typical() / 1e9;
  state.counters["probe_GB/s"] = samples.probe();
  state.counters["share_%"] = 100 * samples.share(bytes);
  state.counters["GFLOP/s"] = 2 * multiplies / samples.typical() / 1e9;
  state.counters["trusted"] = static_cast<double>(samples.trusted());
}

void arguments(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, all_threads()}) {
    for (const int rows : {1, 2, 4, 5, 8, 16, 64, 512}) bench->Args({rows, threads});
    if (all_threads() == 1) break;
  }
  bench->ArgNames({"rows", "threads"})->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
}

BENCHMARK(matmul<Fp32>)->Name("matmul/f32")->Apply(arguments);
BENCHMARK(matmul<Fp16>)->Name("matmul/f16")->Apply(arguments);
BENCHMARK(matmul<Bf16>)->Name("matmul/bf16")->Apply(arguments);

}  // namespace

BENCHMARK_MAIN();
