// The measurable backends: opening, memory probe, and synchronization.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/device/measure.hpp"
#include "bench/samples.hpp"
#include "tools/cli/gpu.hpp"

namespace slm::bench {

/// Bytes read and written per second by a copy within device memory. Every memory-bound figure of a GPU is a share of
/// it.
template <class Backend>
class CopyProbe {
 public:
  explicit CopyProbe(const Backend& device)
      : runtime_(device.runtime()),
        bytes_(Backend::emulated ? std::size_t{1} << 16 : std::min(std::size_t{1} << 30, runtime_.memory_free() / 4)),
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
    return 2.0 * copies * static_cast<double>(bytes_) / milliseconds * 1e3;
  }

 private:
  using Runtime = typename Backend::Runtime;

  Runtime runtime_;
  std::size_t bytes_;
  void *from_, *to_;
  typename Runtime::Stream stream_;
  typename Runtime::Event begin_, end_;
};

template <class Backend>
Device gpu_device(const Backend& device) {
  const auto& info = device.info();
  return {.name = info.name,
          .architecture = info.architecture,
          .driver = info.driver,
          .backend = Backend::name,
          .memory_bytes = static_cast<std::int64_t>(info.memory_bytes),
          .cores = info.multiprocessors,
          .threads = 0};
}

/// A GPU, real or emulated. Opens its device again for each subject only if the target has settings per subject.
template <class Backend_>
class GpuTarget {
 public:
  using Backend = Backend_;
  using Probe = CopyProbe<Backend>;

  static constexpr bool emulated = Backend::emulated;
  static constexpr int prompt = emulated ? 8 : 64, prefill = emulated ? 40 : 2048;

  explicit GpuTarget(const MeasureOptions& options)
      : device_({.device = options.device,
                 .dependent_launches = cli::dependent_launches(),
                 .persistent_steps = cli::persistent_steps()}),
        probe_(device_) {}

  static bool copies_weights(const Subject&) { return true; }

  std::vector<std::string> formats() const { return {"bf16", "w4a16"}; }
  Backend open(const std::string&) { return device_; }
  Probe& probe() { return probe_; }
  static void finish(Backend& device) { device.synchronize(); }
  double memory_free() const { return static_cast<double>(device_.runtime().memory_free()); }

  Device description() const { return gpu_device(device_); }

 private:
  Backend device_;
  Probe probe_;
};

}  // namespace slm::bench
