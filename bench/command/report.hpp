// The report file of all measurements, in one schema for all devices and vendors (docs/benchmarks.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace slm::bench {

inline constexpr const char* report_schema = "slm-bench-2";

struct Device {
  std::string name;          // "AMD EPYC 9B14", "NVIDIA H200"
  std::string architecture;  // a CPU's instruction set ("avx512"), or the target of a GPU's code ("sm_90")
  std::string driver;        // the GPU driver with its version; for a CPU, the operating system
  std::string backend;       // cpu, cuda, hip; lanes32 is a GPU emulated by the CPU
  std::int64_t memory_bytes = 0;
  int cores = 0;    // multiprocessors, compute units
  int threads = 0;  // compute threads of the CPU; 0: a GPU

  /// Whether the times have no meaning.
  bool emulated() const { return backend.starts_with("lanes"); }
  bool operator==(const Device&) const = default;
};

struct Result {
  std::string benchmark;  // "decode", "prefill", "speculative", "kernel-qkv" ...
  std::string model;      // "AMD-Llama-135M"; for a pair "target + draft"
  std::string format;     // "bf16", "w4a16", "w4a8"; for a pair "target + draft"
  int rows = 1;           // tokens per call
  double seconds = 0;     // median time of one call
  double bytes = 0;       // bytes moved, at least
  double bandwidth = 0;   // bytes per second of a probe of the device's memory in the same run; 0: none
  /// Figures of this benchmark, in SI units: "tokens_per_second", "times_one_row" ...
  std::map<std::string, double> numbers = {};

  bool operator==(const Result&) const = default;
};

struct Report {
  std::string version, date;  // slm's version; ISO 8601
  Device device;
  std::vector<Result> results = {};
  std::vector<std::string> failures = {};  // measurements that failed, with the reason

  bool operator==(const Report&) const = default;
};

/// A report of this build of slm, dated now.
Report make_report(Device device);

/// Throws bench.bad-report for invalid contents, bench.other-schema for another schema version, and json.* for invalid
/// JSON. file: the name in messages.
Report parse_report(std::string_view json, const std::string& file);
Report read_report(const std::filesystem::path& path);

/// Writes atomically. The contents pass read_report().
void write_report(const std::filesystem::path& path, const Report& report);

}  // namespace slm::bench
