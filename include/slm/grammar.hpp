// Structured output: grammars and their masks (docs/structured.md).
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/grammar/constrain.hpp"
#include "slm/grammar/constraint.hpp"
#include "slm/grammar/grammar.hpp"
#include "slm/grammar/token_trie.hpp"
