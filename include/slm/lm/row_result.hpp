// ResultSpec: the results that a batch requests for the tokens of a sequence.
#pragma once

#include <cstdint>
#include <span>

#include "slm/core/draw.hpp"

namespace slm { inline namespace v0_1 {

/// The result requested for a token.
enum class RowResult : std::uint8_t {
  nothing,  // only keys and values, as for most of a prompt
  logits,   // [vocab]: logits of the next token
  choice,   // the next token, sampled on the device; requires ModelInfo::chooses
  hidden,   // [hidden]: the head's input, after the final norm
};

/// The tokens that may follow: bit t % 64 of word t / 64 is set for each of them. Tokens beyond the words are
/// forbidden. Without words all tokens may follow.
using TokenMask = std::span<const std::uint64_t>;

struct ResultSpec {
  RowResult result = RowResult::nothing;
  int rows = 1;    // number of last tokens that get a result
  Draw draw = {};  // sampling parameters of RowResult::choice
  int chain = 1;  // RowResult::choice only: number of tokens to choose one after another; all but the last are appended
  std::span<const TokenMask> masks = {};  // RowResult::choice without a chain only: [rows], or empty: all tokens may
                                          // follow; must outlive the forward, see Batch::before_masks
};

}}
