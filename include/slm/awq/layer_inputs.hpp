// Inputs of one block's linear layers during calibration: statistics, and complete activations of some sequences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/awq/block_runner.hpp"
#include "slm/awq/parallel.hpp"
#include "slm/awq/rounding.hpp"
#include "slm/backend/cpu/thread_pool.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Searches compare outputs at every fourth token: adjacent tokens are similar, and products dominate the cost of a
/// search.
inline Rows thinned(const Rows& all, std::int64_t width) {
  constexpr std::int64_t stride = 4;
  Rows kept;
  for (auto row = all.begin(); row < all.end(); row += std::min(stride * width, all.end() - row)) {
    kept.insert(kept.end(), row, row + width);
  }
  return kept;
}

/// Statistics of one linear layer's inputs.
struct InputStatistics {
  std::int64_t in = 0;
  std::int64_t group = 0;
  std::vector<double> magnitude;  // [in], sum of |x| over all tokens
  std::int64_t tokens = 0;
  std::vector<float> moments;  // [in / group, group, group], sum of x x^T over the searched sequences

  void start(std::int64_t inputs, std::int64_t group_size, bool with_moments) {
    *this = {.in = inputs, .group = group_size, .magnitude = {}, .tokens = 0, .moments = {}};
    magnitude.assign(static_cast<std::size_t>(in), 0);
    if (with_moments) moments.assign(static_cast<std::size_t>(in * group), 0);
  }

  void add(const Rows& x, bool keep, backend::ThreadPool& pool) {
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / in;
    for (std::int64_t t = 0; t < rows; ++t) {
      const float* row = x.data() + t * in;
      for (std::size_t k = 0; k < magnitude.size(); ++k) magnitude[k] += std::abs(double{row[k]});
    }
    tokens += rows;
    if (!keep || moments.empty()) return;
    parallel_for(pool, in / group, [&](std::int64_t g) {
      for (std::int64_t t = 0; t < rows; ++t) add_outer_product(&x[static_cast<std::size_t>(t * in + g * group)], g);
    });
  }

  /// Mean |x| per feature.
  std::vector<float> mean_magnitude() const {
    std::vector<float> means;
    for (const double sum : magnitude) means.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    return means;
  }

  /// The moments after the features are divided by `scales`.
  void divide(std::span<const float> scales) {
    if (scales.empty()) return;
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const auto size = static_cast<std::size_t>(group);
      const std::size_t start = i / (size * size) * size;
      moments[i] /= scales[start + i / size % size] * scales[start + i % size];
    }
  }

 private:
  void add_outer_product(const float* x, std::int64_t g) {
    float* to = moments.data() + g * group * group;
    for (std::int64_t i = 0; i < group; ++i, to += group) {
      std::int64_t k = 0;
      for (; k + 8 <= group; k += 8) {  // a fixed trip count of eight is vectorised
        for (int j = 0; j < 8; ++j) to[k + j] += x[i] * x[k + j];
      }
      for (; k < group; ++k) to[k] += x[i] * x[k];
    }
  }
};

/// Activations of one sequence in a block, thinned except attention_x.
struct SequenceActivations {
  Rows attention_x, mixed, attention_y;  // residual stream, input of the output projection, output of attention
  Rows mlp_x, gated, mlp_y;              // likewise for the MLP
};

/// Inputs of a block's four linear layers, and the sequences for searches.
struct LayerInputs {
  InputStatistics qkv, attention_out, gate_up, down;
  std::vector<SequenceActivations> searched;

  void start(const FloatLayer& layer, const Rounding& rounding, bool with_moments) {
    const auto begin = [&](InputStatistics& input, const FloatLinear& linear) {
      input.start(linear.in, rounding.group_of(linear.in), with_moments && rounding.fits(linear));
    };
    begin(qkv, layer.qkv);
    begin(attention_out, layer.attention_out);
    begin(gate_up, layer.gate_up);
    begin(down, layer.down);
  }
};

}}}
