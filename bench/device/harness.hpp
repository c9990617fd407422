// Google Benchmark runs the measurements in sequence. The harness collects their results and reports progress.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/tables.hpp"
#include "bench/device/subject.hpp"
#include "bench/samples.hpp"
#include "slm/core/error.hpp"

namespace slm::bench {

class Harness {
 public:
  using Body = std::function<void(benchmark::State&, Result&)>;

  Harness(Device device, std::function<void(const Report&)> keep)
      : report_(make_report(std::move(device))), keep_(std::move(keep)) {}

  /// body: fills in the result; its exceptions are failures of this result only. cost: of all samples, in any unit, to
  /// estimate the remaining time.
  void add(std::string benchmark, const Subject& subject, int rows, int samples, double cost, Body body) {
    total_cost_ += cost;
    const Result what{
        .benchmark = std::move(benchmark), .model = subject.model, .format = subject.format, .rows = rows};
    const std::string name = text(what.benchmark, "/", what.model, "/", what.format, "/rows:", what.rows);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [this, what, cost, name, body = std::move(body)](benchmark::State& state) {
                                   Result result = what;
                                   done_cost_ += cost;
                                   try {
                                     body(state, result);
                                     say(name, result);
                                     report_.results.push_back(std::move(result));
                                   } catch (const std::exception& error) {
                                     fail(name, error.what());
                                     state.SkipWithError("failed");
                                   }
                                   if (keep_) keep_(report_);
                                 })
        ->UseManualTime()
        ->Iterations(samples);
  }

  Report run() {
    began_ = seconds();
    if (total_cost_ == 0) return std::move(report_);
    if (keep_) keep_(report_);  // reports an unwritable file before the measurements
    Silent reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    benchmark::ClearRegisteredBenchmarks();
    return std::move(report_);
  }

 private:
  /// Google Benchmark's output is suppressed; slm writes its own report.
  struct Silent : benchmark::BenchmarkReporter {
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
  };

  void say(const std::string& name, const Result& result) const {
    const double left = (seconds() - began_) * (total_cost_ - done_cost_) / done_cost_;
    std::fprintf(stderr, "%-44s %10s us %7s GB/s", name.c_str(), shown(result.seconds * 1e6).c_str(),
                 shown(result.bytes / result.seconds / 1e9).c_str());
    if (left >= 5) std::fprintf(stderr, "   about %.0f s left", left);
    std::fputc('\n', stderr);
  }

  void fail(const std::string& name, const std::string& why) {
    std::string line = name + ": " + why;
    std::replace(line.begin(), line.end(), '\n', ' ');
    report_.failures.push_back(line.substr(0, 400));
    std::fprintf(stderr, "FAILED %s\n", line.c_str());
  }

  Report report_;
  std::function<void(const Report&)> keep_;
  double total_cost_ = 0, done_cost_ = 0, began_ = 0;
};

/// The fields of every result, from its samples.
inline void conclude(Result& result, const ProbedSamples& samples, double bytes) {
  result.seconds = samples.typical();
  result.bytes = bytes;
  result.bandwidth = samples.bandwidth();
  result.numbers["share_of_bandwidth"] = samples.share(bytes);
  result.numbers["trusted_samples"] = static_cast<double>(samples.trusted());
}

}  // namespace slm::bench
