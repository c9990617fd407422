// Draws a token from a row of logits. The arithmetic gives the same bits on a CPU and on any GPU, so that both choose
// the same token. Weights and logarithms are integers, and sums of weights are exact in any order. The few operations
// on doubles round once each and cannot be fused by a compiler.
#pragma once

#include <array>
#include <cstdint>

#include "slm/core/macros.hpp"
#include "slm/core/rng.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

inline constexpr Token no_token = -1;

/// The weight of a row's most likely token. Weights are integers: a token less likely by a factor of 2^-44 has weight
/// 0.
inline constexpr std::uint64_t whole_weight = std::uint64_t{1} << 44;
static_assert(most_vocab <= ~std::uint64_t{0} / whole_weight);

/// The parameters of every draw of a request; draw_of() computes them from Sampling.
struct Draw {
  double scale = 0;              // 2^31 log2(e) / temperature; 0: greedy
  std::uint64_t seed = 0;        // key of the random bits, with position and token
  std::uint64_t min_weight = 1;  // tokens of lower weight are excluded
  std::uint32_t top_p = 0;       // times 2^32; 0: all
  int top_k = 0;                 // 0: all
  int vocab = 0;                 // ids >= vocab are excluded

  SLM_DEVICE bool greedy() const { return scale == 0; }
  SLM_DEVICE bool cuts() const { return top_k != 0 || top_p != 0; }

  /// The total weight that the most likely tokens must reach (top_p), given the total of the tokens that top_k kept.
  SLM_DEVICE std::uint64_t wanted(std::uint64_t total) const {
    const std::uint64_t share = (total >> 32) * top_p + ((total & 0xffffffffu) * top_p >> 32);
    return share == 0 ? 1 : share;
  }

  bool operator==(const Draw&) const = default;
};

/// Maps floats to integers in the same order. NaN is above +infinity or below -infinity, by its sign; -0 is mapped as
/// 0. Integer comparisons vectorise and remain correct under -ffast-math.
SLM_DEVICE std::int32_t order_key(float value) {
  const std::int32_t bits = __builtin_bit_cast(std::int32_t, value + 0.0f);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

inline constexpr std::int32_t infinity_key = 0x7f800000;
inline constexpr std::int32_t minus_infinity_key = ~0x7f800000;

/// whole_weight * 2^-(distance / 2^31), where distance is (peak - logit) * scale; relative error at most 2^-27.
SLM_DEVICE std::uint64_t weight_of(float logit, float peak, double scale) {
  const double distance = (static_cast<double>(peak) - static_cast<double>(logit)) * scale;
  if (!(distance >= 0 && distance < 45 * 0x1p31)) return 0;  // also for logits that are not finite
  const auto whole = static_cast<std::int64_t>(distance);
  const auto fraction = static_cast<std::int32_t>(whole & 0x7fffffff);
  // 2^-x for 0 <= x < 1, in units of 2^-30
  constexpr std::int32_t c[] = {1073741824, -744261115, 257941175, -59596455, 10324798, -1425924, 158267, -11658};
  std::int32_t sum = c[7];
  SLM_UNROLL
  for (int i = 6; i >= 0; --i) sum = c[i] + static_cast<std::int32_t>((std::int64_t{sum} * fraction + (1 << 30)) >> 31);
  return (static_cast<std::uint64_t>(sum) << 14) >> (whole >> 31);
}

/// The random words for the draw of two adjacent tokens (a pair) at one position.
SLM_DEVICE std::array<std::uint32_t, 4> race_words(std::uint64_t seed, std::uint64_t position, std::uint32_t pair) {
  return philox({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), pair,
                 static_cast<std::uint32_t>(Stream::gumbel)},
                seed);
}

/// A token's uniform number u in (0, 1), in units of 2^-64, from the words of its pair.
SLM_DEVICE std::uint64_t race_uniform(const std::array<std::uint32_t, 4>& words, std::uint32_t token) {
  const std::uint32_t high = (token & 1u) != 0 ? words[2] : words[0], low = (token & 1u) != 0 ? words[3] : words[1];
  return ((std::uint64_t{high} << 32 | low) >> 12 << 12) | std::uint64_t{1} << 11;
}

/// The exponential race: a token of weight w arrives at time -log2(u) / w. The first one wins; ties go to the lowest
/// id. This returns -log2(u) in units of 2^-57; relative error at most 2^-27.
SLM_DEVICE double race_distance(std::uint64_t u) {
  int zeros = 0;
  if (u >> 32 == 0) zeros += 32, u <<= 32;
  if (u >> 48 == 0) zeros += 16, u <<= 16;
  if (u >> 56 == 0) zeros += 8, u <<= 8;
  if (u >> 60 == 0) zeros += 4, u <<= 4;
  if (u >> 62 == 0) zeros += 2, u <<= 2;
  if (u >> 63 == 0) zeros += 1, u <<= 1;
  const std::uint64_t rest = 0 - u;  // 1 - u, which is in (0, 1/2]
  // -log2(1 - x) / x for x = (1 + s) / 4 and -1 <= s <= 1, in units of 2^-30
  constexpr std::int32_t c[] = {1782572486, 282870187, 61370270, 15127627, 3996724, 1102938,
                                314152,     91365,     25927,    7679,     3268,    1026};
  const auto s = static_cast<std::int32_t>(static_cast<std::int64_t>(rest >> 32) - (std::int64_t{1} << 30));
  std::int32_t sum = c[11];
  SLM_UNROLL
  for (int i = 10; i > 0; --i) sum = c[i] + static_cast<std::int32_t>((std::int64_t{sum} * s + (1 << 29)) >> 30);
  const auto factor = static_cast<std::uint64_t>(c[0] + (std::int64_t{sum} * s >> 30));
  const std::uint64_t product = (rest >> 32) * factor + ((rest & 0xffffffffu) * factor >> 32);  // units of 2^-62
  return static_cast<double>((static_cast<std::uint64_t>(zeros) << 57) + (product >> 5));
}

}}
