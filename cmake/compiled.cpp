// What slm::compiled holds for its programs, besides the kernels (docs/building.md, "Compiled once").
#define SLM_COMPILING
#include "slm/speculative.hpp"
