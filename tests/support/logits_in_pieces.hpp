// The logits of a text, read in pieces, and their comparison.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/session.hpp"

namespace slm::testing {

/// The logits of all rows of a text that a new session reads in pieces of `piece` tokens.
inline std::vector<float> logits_in_pieces(const AnyModel& model, const std::vector<Token>& text, int piece) {
  Session session(model);
  std::vector<float> all;
  for (std::size_t at = 0; at < text.size(); at += static_cast<std::size_t>(piece)) {
    const auto part = std::span(text).subspan(at, std::min(static_cast<std::size_t>(piece), text.size() - at));
    const auto logits = session.forward(part, static_cast<int>(part.size()));
    all.insert(all.end(), logits.data, logits.data + logits.size());
  }
  return all;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

inline bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace slm::testing
