// The file that every measurement ends in, one schema for all devices and vendors (docs/benchmarks.md describes it).
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
  std::string architecture;  // the instruction set of a CPU ("avx512"), what a GPU's code is compiled for ("sm_90")
  std::string driver;        // the vendor's, with its version; a CPU's is the operating system
  std::string backend;       // cpu, cuda, hip; lanes32 and lanes64 are GPUs emulated by the processor
  std::int64_t memory_bytes = 0;
  int cores = 0;    // multiprocessors, compute units
  int threads = 0;  // of the processor that computed; 0: the GPU did

  /// Whether times mean nothing.
  bool emulated() const { return backend.starts_with("lanes"); }
  bool operator==(const Device&) const = default;
};

struct Result {
  std::string benchmark;  // "decode", "prefill", "speculative", "kernel-qkv" ...
  std::string model;      // "AMD-Llama-135M"; of a pair "target + draft"
  std::string format;     // "bf16", "w4a16", "w4a8"; of a pair "target + draft"
  int rows = 1;           // tokens that one call computes together
  double seconds = 0;     // median time of one call
  double bytes = 0;       // what it moves, at least
  double bandwidth = 0;   // bytes per second that a probe of the device's memory moved in the same run; 0: none
  /// The benchmark's own, in SI units: "tokens_per_second", "times_one_row" ...
  std::map<std::string, double> numbers = {};

  bool operator==(const Result&) const = default;
};

struct Report {
  std::string version, date;  // of slm; ISO 8601
  Device device;
  std::vector<Result> results = {};
  std::vector<std::string> failures = {};  // what did not run, and why

  bool operator==(const Report&) const = default;
};

/// A report of this build of slm and this moment.
Report make_report(Device device);

/// Throws bench.bad-report for whatever keeps it from being a report, bench.other-schema for another version of it,
/// and json.* for what is no JSON. `file` is for the message.
Report parse_report(std::string_view json, const std::string& file);
Report read_report(const std::filesystem::path& path);

/// Whole or not at all, and nothing that read_report() would refuse.
void write_report(const std::filesystem::path& path, const Report& report);

}  // namespace slm::bench
