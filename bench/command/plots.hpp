// The pictures of reports and runs: matplotlib draws them, where it is (plots.py).
#pragma once

#include <map>
#include <string>

#include "slm/io/json.hpp"

namespace slm::bench {

struct Pictures {
  std::map<std::string, std::string> files = {};  // name -> SVG
  std::string trouble = {};                       // why there are none, and what to do; nothing when drawn
};

/// request: {"summary": ...} of a run, or {"figures": ...} of a comparison, which is the one file figures.svg.
Pictures draw(const Json& request);

}  // namespace slm::bench
