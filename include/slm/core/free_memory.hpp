// free_memory: host memory that this process may still allocate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <istream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "slm/core/control_groups.hpp"
#include "slm/core/os/memory.hpp"
#include "slm/core/os/processors.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Bytes left below the memory limit of the control group at `directory` (v1 or v2). Page cache of files counts as
/// free. nullopt: no limit.
inline std::optional<std::uint64_t> free_of_group(const std::string& directory) {
  const auto number_in = [&](const char* name) -> std::optional<std::uint64_t> {
    std::uint64_t number = 0;
    if (std::ifstream(directory + name) >> number) return number;
    return std::nullopt;
  };
  const bool unified = static_cast<bool>(std::ifstream(directory + "/memory.current"));
  const auto limit = number_in(unified ? "/memory.max" : "/memory.limit_in_bytes");
  const auto used = number_in(unified ? "/memory.current" : "/memory.usage_in_bytes");
  if (!limit || !used) return std::nullopt;
  // Version 1 has other field names; its total_ fields include the descendant groups.
  std::map<std::string, std::uint64_t> found;
  std::uint64_t bytes = 0;
  std::ifstream statistics(directory + "/memory.stat");
  for (std::string name; statistics >> name >> bytes;) found[name] = bytes;
  const std::string total = found.contains("total_active_file") ? "total_" : "";
  const std::uint64_t cached = found[total + "active_file"] + found[total + "inactive_file"];
  const std::uint64_t taken = *used - std::min(*used, cached);
  return *limit - std::min(*limit, taken);
}

/// meminfo, groups: contents of /proc/meminfo and /proc/self/cgroup. root: mount point of the control groups.
inline std::optional<std::uint64_t> free_memory_of(std::istream& meminfo, std::istream& groups,
                                                   const std::string& root) {
  std::optional<std::uint64_t> least;
  const auto limit = [&least](std::uint64_t bytes) { least = std::min(least.value_or(bytes), bytes); };
  std::uint64_t kilobytes = 0;
  for (std::string line; std::getline(meminfo, line);) {
    constexpr std::string_view name = "MemAvailable:";
    if (!line.starts_with(name)) continue;
    std::istringstream value(line.substr(name.size()));
    if (value >> kilobytes) limit(kilobytes * 1024);
  }
  for_each_group(groups, root, "memory", [&](const std::string& directory) {
    if (const auto left = free_of_group(directory)) limit(*left);
  });
  return least;
}

}  // namespace detail

/// Bytes: MemAvailable of the system, limited by the control groups' memory limits. If neither is known: the physical
/// memory.
inline std::size_t free_memory() {
  std::optional<std::uint64_t> free;
  if constexpr (detail::has_control_groups) {
    std::ifstream meminfo("/proc/meminfo"), groups("/proc/self/cgroup");
    free = detail::free_memory_of(meminfo, groups, "/sys/fs/cgroup");
  }
  if (const std::uint64_t stated = detail::free_physical_memory(); !free && stated > 0) free = stated;
  const std::uint64_t all = detail::physical_memory();
  return static_cast<std::size_t>(std::min<std::uint64_t>(free.value_or(all), std::numeric_limits<std::size_t>::max()));
}

namespace detail {

/// Default memory budget in bytes: free memory divided by `part`, at least 64 MiB.
inline std::size_t usual_budget(std::size_t part) { return std::max(free_memory() / part, std::size_t{64} << 20); }

}  // namespace detail

}}
