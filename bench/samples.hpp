// How everything here is timed: medians of samples, each beside a probe of the memory's speed at that moment.
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

/// Samples of one measurement, each between two probes. The bandwidth of a virtual or busy machine jumps, so a sample
/// counts only when the probes around it agree within a tenth.
class ProbedSamples {
 public:
  /// Seconds of action(), for the caller; keeps the sample if it can be trusted.
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
  /// Median seconds: of the trusted samples, of all where none is.
  double typical() const { return median(trusted_.empty() ? all_ : trusted_); }
  /// Median bytes per second of the probes beside them.
  double bandwidth() const { return median(trusted_.empty() ? all_probes_ : probes_); }

  /// Median of each sample's bytes per second over those of its own probes.
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
