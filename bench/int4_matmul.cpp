// Products of four-bit weights and a few or many rows of activations: time, GB/s of weights, share of the bandwidth
// that a vector sum reaches beside each sample, cost of n rows in units of one. Activations of 16 bits (w4a16) and 8
// (w4a8).
//   build/cpu/bin/bench-int4_matmul --benchmark_filter='w4a16/4096x4096'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bench/bandwidth.hpp"
#include "bench/int4_random.hpp"
#include "slm/backend/cpu/cpu.hpp"

namespace {

using namespace slm;
using backend::Int4Activations;

struct Shape {
  int out, in;
};

int all_threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

void matmul(benchmark::State& state, Shape shape, Int4Activations activations, backend::Isa isa) {
  const int rows = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  std::vector<backend::cpu::Int4Matrix> matrices;  // enough that none is still in a cache when its turn comes again
  for (std::int64_t bytes = 0; bytes < 256 << 20; bytes += matrices.back().bytes()) {
    matrices.push_back(bench::random_int4(shape.out, shape.in, 128, static_cast<std::uint32_t>(matrices.size())));
  }
  const std::size_t used =
      rows <= 16 ? matrices.size() : std::max<std::size_t>(1, matrices.size() * 8 / static_cast<std::size_t>(rows));
  backend::Cpu device{{.threads = threads, .isa = isa, .activations = activations}};
  bench::BandwidthProbe probe(threads);
  std::vector<float> x(static_cast<std::size_t>(rows * shape.in)), y(static_cast<std::size_t>(rows * shape.out));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 251) - 125;
  const auto run = [&](int count) {
    for (std::size_t i = 0; i < used; ++i) {
      device.project(View<const float, 2>{x.data(), count, shape.in}, matrices[i], nullptr,
                     View<float, 2>{y.data(), count, shape.out});
    }
  };
  run(rows);
  bench::ProbedSamples samples;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double together = samples.measure(probe, [&] { run(rows); });
    state.SetIterationTime(together);
    const double start = bench::seconds();
    run(1);
    ratios.push_back(together / (bench::seconds() - start));
  }
  const double bytes = static_cast<double>(matrices.front().bytes()) * static_cast<double>(used);
  state.counters["us_per_matrix"] = samples.typical() / static_cast<double>(used) * 1e6;
  state.counters["GB/s"] = bytes / samples.typical() / 1e9;
  state.counters["probe_GB/s"] = samples.probe();
  state.counters["share_%"] = 100 * samples.share(bytes);
  state.counters["v(n)"] = bench::median(ratios);
  state.counters["GOP/s"] = 2.0 * shape.out * shape.in * rows * static_cast<double>(used) / samples.typical() / 1e9;
  state.counters["trusted"] = static_cast<double>(samples.trusted());
}

void arguments(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, all_threads()}) {
    for (const int rows : {1, 2, 3, 4, 5, 6, 8, 16, 64, 512}) bench->Args({rows, threads});
    if (all_threads() == 1) break;
  }
  bench->ArgNames({"rows", "threads"})->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
}

/// For the best instruction set of this machine, and the weaker ones that it has too.
const bool registered = [] {
  for (const backend::Isa isa : backend::available_isas()) {
    for (const auto& [name, activations] :
         {std::pair{"w4a16", Int4Activations::bits16}, {"w4a8", Int4Activations::bits8}}) {
      for (const Shape shape : {Shape{2048, 768}, Shape{4096, 4096}}) {
        const std::string title =
            std::string(name_of(isa)) + "/" + name + "/" + std::to_string(shape.out) + "x" + std::to_string(shape.in);
        benchmark::RegisterBenchmark(title.c_str(), matmul, shape, activations, isa)->Apply(arguments);
      }
    }
  }
  return true;
}();

}  // namespace

BENCHMARK_MAIN();
