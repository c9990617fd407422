// What the GPU benchmarks share: the device that this program was compiled for, the bandwidth of a copy on it, and what
// a report says of it. Compiled as plain C++ they run on emulated lanes, tiny: a dry run that measures nothing.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/select.hpp"
#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#if !defined(__CUDACC__) && !defined(__HIP__)
#include "slm/backend/gpu/lanes.hpp"
#endif

namespace slm::bench {

#if defined(__CUDACC__) || defined(__HIP__)
inline constexpr bool emulated = false;
using Device = DefaultBackend;
#else
inline constexpr bool emulated = true;
using Device = backend::Gpu<backend::LanesRuntime<gpu::MmaSync16x8x16> >;
#endif
using Runtime = std::remove_cvref_t<decltype(std::declval<Device>().runtime())>;

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Bytes read and written per second, in GB/s, by a copy from device memory to device memory: what every memory-bound
/// figure is a share of.
class CopyProbe {
 public:
  explicit CopyProbe(const Device& device)
      : runtime_(device.runtime()),
        bytes_(emulated ? std::size_t{1} << 16 : std::min(std::size_t{1} << 30, runtime_.memory_free() / 4)),
        from_(runtime_.allocate(bytes_)),
        to_(runtime_.allocate(bytes_)),
        stream_(runtime_.make_stream()),
        begin_(runtime_.make_event()),
        end_(runtime_.make_event()) {
    runtime_.fill(from_, 1, bytes_, stream_);
    (*this)();
  }
  CopyProbe(const CopyProbe&) = delete;
  CopyProbe& operator=(const CopyProbe&) = delete;
  ~CopyProbe() {
    runtime_.release(from_);
    runtime_.release(to_);
  }

  double operator()() {
    constexpr int copies = 4;
    runtime_.record(begin_, stream_);
    for (int i = 0; i < copies; ++i) runtime_.copy(to_, from_, bytes_, stream_);
    runtime_.record(end_, stream_);
    const double milliseconds = std::max(1e-6, static_cast<double>(runtime_.milliseconds(begin_, end_)));
    return 2.0 * copies * static_cast<double>(bytes_) / milliseconds / 1e6;
  }

 private:
  Runtime runtime_;
  std::size_t bytes_;
  void *from_, *to_;
  Runtime::Stream stream_;
  Runtime::Event begin_, end_;
};

/// The benchmark's counters that every row of a report has; `times` in seconds.
inline void report(benchmark::State& state, const std::vector<double>& times, const std::vector<double>& probes,
                   double rows, double bytes) {
  const double typical = median(times);
  state.counters["rows"] = rows;
  state.counters["seconds"] = typical;
  state.counters["bytes"] = bytes;
  state.counters["GB/s"] = bytes / typical / 1e9;
  state.counters["copy_GB/s"] = median(probes);
  state.counters["share_%"] = 100 * bytes / typical / 1e9 / median(probes);
}

/// Times `action`, which ends when the device has, and the bandwidth beside it.
template <class Action>
void measure(benchmark::State& state, CopyProbe& probe, double rows, double bytes, Action&& action) {
  std::vector<double> times, probes;
  action();
  for (auto _ : state) {
    probes.push_back(probe());
    const double start = seconds();
    action();
    times.push_back(seconds() - start);
    state.SetIterationTime(times.back());
  }
  report(state, times, probes, rows, bytes);
}

/// main() of a GPU benchmark: opens the device, lets `registration` add its benchmarks, runs them.
template <class Registration>
int run(int argc, char** argv, Registration&& registration) try {
  const char* index = std::getenv("SLM_DEVICE");
  const Device device({.device = index ? std::atoi(index) : 0});
  const gpu::DeviceInfo& info = device.info();
  benchmark::AddCustomContext("slm_version", text(SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH));
  benchmark::AddCustomContext("device", info.name);
  benchmark::AddCustomContext("architecture", info.architecture);
  benchmark::AddCustomContext("driver", info.driver);
  benchmark::AddCustomContext("backend", Runtime::name);
  benchmark::AddCustomContext("multiprocessors", text(info.multiprocessors));
  benchmark::AddCustomContext("memory_bytes", text(info.memory_bytes));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  registration(device);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
} catch (const Error& error) {
  std::cerr << (error.id() == "gpu.no-device" ? "SKIPPED: " : "") << error.what() << '\n';
  return error.id() == "gpu.no-device" ? 77 : 1;
}

}  // namespace slm::bench
