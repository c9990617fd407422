// Public header for conversations in a program: a chat that calls the program's tools (docs/chat.md). Includes
// what slm/speculative.hpp and slm/grammar.hpp have.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/chat/chat.hpp"
#include "slm/grammar.hpp"
#include "slm/speculative.hpp"
#include "slm/text/chat.hpp"
