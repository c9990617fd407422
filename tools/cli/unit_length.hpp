// Normalisation of embeddings to length 1.
#pragma once

#include <cmath>
#include <vector>

namespace cli {

/// Leaves a zero vector unchanged.
inline void to_unit_length(std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  if (squares == 0) return;
  for (float& value : values) value = static_cast<float>(double{value} / std::sqrt(squares));
}

}  // namespace cli
