// ResultSpec: the results that a batch requests for the tokens of a sequence.
#pragma once

#include <cstdint>

#include "slm/core/draw.hpp"

namespace slm { inline namespace v0_1 {

/// The result requested for a token.
enum class RowResult : std::uint8_t {
  nothing,  // only keys and values, as for most of a prompt
  logits,   // [vocab]: logits of the next token
  choice,   // the next token, sampled on the device; requires ModelInfo::chooses
  hidden,   // [hidden]: the head's input, after the final norm
};

struct ResultSpec {
  RowResult result = RowResult::nothing;
  int rows = 1;    // number of last tokens that get a result
  Draw draw = {};  // sampling parameters of RowResult::choice
  int chain = 1;  // RowResult::choice only: number of tokens to choose one after another; all but the last are appended
};

}}
