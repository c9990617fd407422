// Timing of all benchmarks: medians of samples, each beside a probe of the memory's bandwidth.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace slm::bench {

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Samples of one measurement, each between two probes. The bandwidth of a virtual or busy machine varies, so a sample
/// counts only if its two probes agree within 10 %.
class ProbedSamples {
 public:
  /// Seconds of action(). Keeps the sample if its probes agree.
  template <class Probe, class Action>
  double measure(Probe& probe, Action&& action) {
    const double before = probe();
    const double start = seconds();
    action();
    const double took = seconds() - start;
    const double after = probe();
    all_.push_back(took);
    all_probes_.push_back((before + after) / 2);
    if (std::abs(before - after) < 0.1 * std::max(before, after)) {
      trusted_.push_back(took);
      probes_.push_back(all_probes_.back());
    }
    return took;
  }

  std::size_t trusted() const { return trusted_.size(); }
  /// Median seconds of the trusted samples, or of all if there are none.
  double typical() const { return median(trusted_.empty() ? all_ : trusted_); }
  /// Median bytes per second of their probes.
  double bandwidth() const { return median(trusted_.empty() ? all_probes_ : probes_); }

  /// Median over the samples of their bytes per second, divided by their own probes' rate.
  double share(double bytes) const {
    const std::vector<double>& times = trusted_.empty() ? all_ : trusted_;
    const std::vector<double>& probes = trusted_.empty() ? all_probes_ : probes_;
    std::vector<double> shares;
    for (std::size_t i = 0; i < times.size(); ++i) shares.push_back(bytes / times[i] / probes[i]);
    return median(shares);
  }

 private:
  std::vector<double> all_, all_probes_, trusted_, probes_;
};

}  // namespace slm::bench
