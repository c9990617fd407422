// usable_cores: how many threads of this process can compute at the same time.
#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <fstream>
#include <istream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "slm/core/control_groups.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Cores that a limit of processor time amounts to, rounded up; none: there is no limit. quota: microseconds in each
/// period, "max" or a negative number for no limit.
inline std::optional<int> cores_of_quota(const std::string& quota, const std::string& period) {
  std::istringstream quota_text(quota), period_text(period);
  double time = 0, each = 0;
  if (!(quota_text >> time) || !(period_text >> each) || !(time > 0) || !(each > 0)) return std::nullopt;
  constexpr double most = 1 << 20;
  const double cores = std::min(time / each, most);
  const int whole = static_cast<int>(cores);
  return whole + (cores > whole ? 1 : 0);
}

/// The same of the control group at this directory, in either version of the interface.
inline std::optional<int> cores_of_group(const std::string& directory) {
  std::string quota, period;
  if (std::ifstream(directory + "/cpu.max") >> quota >> period) return cores_of_quota(quota, period);
  if (!(std::ifstream(directory + "/cpu.cfs_quota_us") >> quota)) return std::nullopt;
  if (!(std::ifstream(directory + "/cpu.cfs_period_us") >> period)) return std::nullopt;
  return cores_of_quota(quota, period);
}

/// The least limit among a process's control groups, see for_each_group().
inline std::optional<int> cores_of_groups(std::istream& groups, const std::string& root) {
  std::optional<int> least;
  for_each_group(groups, root, "cpu", [&least](const std::string& directory) {
    const std::optional<int> cores = cores_of_group(directory);
    if (cores) least = least ? std::min(*least, *cores) : *cores;
  });
  return least;
}

}  // namespace detail

/// At least 1. Counts the processors that the calling thread may run on (its affinity) and follows the limits of
/// processor time that control groups set, as those of containers do.
inline int usable_cores() {
  int cores = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1u << 20));
#if defined(__linux__)
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0) cores = CPU_COUNT(&allowed);
  std::ifstream groups("/proc/self/cgroup");
  cores = std::min(cores, detail::cores_of_groups(groups, "/sys/fs/cgroup").value_or(cores));
#endif
  return std::max(cores, 1);
}

}}
