// The function of usable_cores.hpp, and the limits of control groups.
#pragma once

#include <algorithm>
#include <fstream>
#include <istream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "slm/core/control_groups.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/os/processors.hpp"
#include "slm/core/usable_cores.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Converts a CPU quota to cores, rounded up. nullopt: no limit. quota: microseconds per period; "max" or a negative
/// number means no limit.
inline std::optional<int> cores_of_quota(const std::string& quota, const std::string& period) {
  std::istringstream quota_text(quota), period_text(period);
  double time = 0, each = 0;
  if (!(quota_text >> time) || !(period_text >> each) || !(time > 0) || !(each > 0)) return std::nullopt;
  constexpr double most = 1 << 20;
  const double cores = std::min(time / each, most);
  const int whole = static_cast<int>(cores);
  return whole + (cores > whole ? 1 : 0);
}

/// The limit of the control group at `directory`, v1 or v2.
inline std::optional<int> cores_of_group(const std::string& directory) {
  std::string quota, period;
  if (std::ifstream(directory + "/cpu.max") >> quota >> period) return cores_of_quota(quota, period);
  if (!(std::ifstream(directory + "/cpu.cfs_quota_us") >> quota)) return std::nullopt;
  if (!(std::ifstream(directory + "/cpu.cfs_period_us") >> period)) return std::nullopt;
  return cores_of_quota(quota, period);
}

/// The smallest limit among the process's control groups; see for_each_group().
inline std::optional<int> cores_of_groups(std::istream& groups, const std::string& root) {
  std::optional<int> least;
  for_each_group(groups, root, "cpu", [&least](const std::string& directory) {
    const std::optional<int> cores = cores_of_group(directory);
    if (cores) least = least ? std::min(*least, *cores) : *cores;
  });
  return least;
}

}  // namespace detail

SLM_INLINE int usable_cores() {
  int cores = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1u << 20));
  if (const int allowed = detail::allowed_processors(); allowed > 0) cores = allowed;
  if constexpr (detail::has_control_groups) {
    std::ifstream groups("/proc/self/cgroup");
    cores = std::min(cores, detail::cores_of_groups(groups, "/sys/fs/cgroup").value_or(cores));
  }
  return std::max(cores, 1);
}

}}
