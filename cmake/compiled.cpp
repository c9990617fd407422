// The source of slm::compiled: it holds the functions that the program's other sources declare (docs/building.md,
// "Compiled once").
#include "slm/chat.hpp"
#include "slm/model/estimate.hpp"
