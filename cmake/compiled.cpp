// The source of slm::compiled: it holds the functions that the program's other sources declare (docs/building.md,
// "Compiled once").
#include "slm/grammar.hpp"
#include "slm/model/estimate.hpp"
#include "slm/speculative.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/chat.hpp"
