// Pictures of reports and runs, drawn by matplotlib if it is installed (plots.py).
#pragma once

#include <map>
#include <string>

#include "slm/io/json.hpp"

namespace slm::bench {

struct Pictures {
  std::map<std::string, std::string> files = {};  // name -> SVG
  std::string trouble = {};                       // why drawing failed, with a remedy; empty: drawn
};

/// request: {"summary": ...} of a run, or {"figures": ...} of a comparison, which yields the one file figures.svg.
Pictures draw(const Json& request);

}  // namespace slm::bench
