// One pass over a row of logits: its maximum, the maximum's index, and whether the row is valid.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

struct Peak {
  Token token = no_token;  // the lowest id with the highest logit; no_token if the row is invalid
  float logit = -std::numeric_limits<float>::infinity();
};

/// A row is valid if it has no NaN, no +infinity and at least one value above -infinity.
inline Peak find_peak(std::span<const float> row) {
  constexpr std::size_t block = 256;  // a constant, for vectorisation; only one block is searched for the index
  std::int32_t top = minus_infinity_key, bottom = infinity_key;
  std::size_t at = 0;
  const auto scan = [&](const float* values, std::size_t count) {
    std::int32_t high = minus_infinity_key, low = infinity_key;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t key = order_key(values[i]);
      high = key > high ? key : high;
      low = key < low ? key : low;
    }
    if (high > top) at = static_cast<std::size_t>(values - row.data());
    top = high > top ? high : top;
    bottom = low < bottom ? low : bottom;
  };
  const std::size_t whole = row.size() / block * block;
  for (std::size_t first = 0; first < whole; first += block) scan(row.data() + first, block);
  scan(row.data() + whole, row.size() - whole);
  if (top >= infinity_key || top == minus_infinity_key || bottom < minus_infinity_key) {
    return {};
  }
  const float highest = std::bit_cast<float>(top ^ ((top >> 31) & 0x7fffffff));
  while (row[at] != highest) ++at;
  return {static_cast<Token>(at), highest};
}

}}
