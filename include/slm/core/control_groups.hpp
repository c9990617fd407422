// Control groups (cgroups) of this process, which limit its share of processor time and memory.
#pragma once

#include <cstddef>
#include <istream>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Calls use(directory) for each control group of the process that has the controller ("cpu", "memory"), and for its
/// ancestors. groups: contents of /proc/self/cgroup, lines of the form number:controllers:path. root: mount point of
/// the control groups.
template <class Use>
void for_each_group(std::istream& groups, const std::string& root, std::string_view controller, Use use) {
  const std::string wanted = std::string(",").append(controller) + ",";
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(wanted) == std::string::npos) continue;
    const std::string mount = unified ? root : std::string(root).append("/").append(controller);
    std::string path = line.substr(second + 1);
    if (path.find("/..") != std::string::npos) path.clear();  // outside of the mounted hierarchy
    for (;;) {
      use(mount + path);
      const std::size_t last = path.rfind('/');
      if (last == std::string::npos) break;
      path.resize(last);
    }
  }
}

}}}
