// The CPU as a target.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "bench/command/cpu_device.hpp"
#include "bench/device/measure.hpp"
#include "bench/device/subject.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "tools/bandwidth.hpp"

namespace slm::bench {

class CpuTarget {
 public:
  using Backend = backend::Cpu;
  using Probe = BandwidthProbe;

  static constexpr bool emulated = false;
  static constexpr int prompt = 64, prefill = 512;

  explicit CpuTarget(const MeasureOptions& options)
      : threads_(threads_of(options)),
        isa_(options.isa),
        copy_weights_(options.copy_weights),
        dense_activations_(options.dense_activations),
        probe_(threads_) {}

  static int threads_of(const MeasureOptions& options) {
    return options.threads != 0 ? options.threads : cpu_device(0).cores;
  }

  std::vector<std::string> formats() const { return bench_formats; }
  bool copies_weights(const Subject& subject) const { return copy_weights_ || subject.int4(); }
  Backend open(const std::string& format) const {
    return Backend(
        {.threads = threads_,
         .isa = isa_,
         .activations = format == "w4a8" ? backend::Int4Activations::bits8 : backend::Int4Activations::bits16,
         .dense_activations = dense_activations_,
         .copy_weights = copy_weights_});
  }
  Probe& probe() { return probe_; }
  static void finish(Backend&) {}

  double memory_free() const {
    std::ifstream file("/proc/meminfo");
    for (std::string word; file >> word;) {
      double kibibytes = 0;
      if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
    }
    return static_cast<double>(cpu_device(0).memory_bytes);
  }

  Device description() const { return cpu_device(threads_, isa_); }

 private:
  int threads_;
  backend::Isa isa_;
  bool copy_weights_;
  backend::DenseActivations dense_activations_;
  Probe probe_;
};

}  // namespace slm::bench
