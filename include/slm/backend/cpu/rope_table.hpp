// RopeTable: the cosines and sines of the positions of a step, computed once and read by every layer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace slm::backend {

/// Remembers the angles of the last few steps (a draft and a target take turns). Compares the frequencies by value:
/// their address may have belonged to another model before.
class RopeTable {
 public:
  struct Angles {
    const float* cosine;  // [rows, half]
    const float* sine;
  };

  /// The angles of positions position.. position + rows - 1, of the float product position * inverse_frequency, their
  /// cosines and sines times `factor`. Valid until the next call.
  Angles angles(const float* inverse_frequency, int half, int position, int rows, float factor = 1) {
    const std::size_t bytes = static_cast<std::size_t>(half) * sizeof(float);
    for (Entry& entry : entries_) {
      if (entry.frequencies.size() * sizeof(float) == bytes && entry.factor == factor && position >= entry.position &&
          position + rows <= entry.position + entry.rows &&
          std::memcmp(entry.frequencies.data(), inverse_frequency, bytes) == 0) {
        const std::size_t skip = static_cast<std::size_t>(position - entry.position) * static_cast<std::size_t>(half);
        return {entry.cosine.data() + skip, entry.sine.data() + skip};
      }
    }
    Entry& entry = entries_[next_++ % 2];
    entry.frequencies.assign(inverse_frequency, inverse_frequency + half);
    entry.factor = factor;
    entry.position = position;
    entry.rows = rows;
    entry.cosine.clear();
    entry.sine.clear();
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < half; ++i) {
        const float angle = static_cast<float>(position + row) * inverse_frequency[i];
        entry.cosine.push_back(std::cos(angle) * factor);
        entry.sine.push_back(std::sin(angle) * factor);
      }
    }
    return {entry.cosine.data(), entry.sine.data()};
  }

 private:
  struct Entry {
    std::vector<float> frequencies;
    float factor = 1;
    int position = 0;
    int rows = 0;
    std::vector<float> cosine;  // [rows, half]
    std::vector<float> sine;
  };

  Entry entries_[2];
  unsigned next_ = 0;
};

}  // namespace slm::backend
