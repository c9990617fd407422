// HostRows: operations of a step on single rows in host memory, which Reference and Cpu share: gates, factors and
// residual streams.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "slm/backend/concept.hpp"
#include "slm/backend/host_recurrence.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// The sum of value(i) for i below count, in an order that vectorises.
template <class Value>
float sum_of(std::int64_t count, const Value& value) {
  float parts[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::int64_t j = 0; j < 16; ++j) parts[j] += value(i + j);
  }
  for (; i < count; ++i) parts[i % 16] += value(i);
  float sum = 0;
  for (const float part : parts) sum += part;
  return sum;
}

/// The mean square of a row.
inline float mean_square(const float* x, std::int64_t width) {
  return sum_of(width, [x](std::int64_t i) { return x[i] * x[i]; }) / static_cast<float>(width);
}

/// Base of a step. Step has each_row(rows, use), and activate_row(activation, gate, up, width, out), which writes
/// activation(gate) * up.
/// Public members: the operations of RecurrentStep, ShapesLayers and MixesStreams on rows alone.
template <class Step>
class HostRows {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  void gate(Rows x, ConstRows gate) {
    each(x, [&](std::int64_t r) {
      float* const to = x.row(r);
      const float* const from = gate.row(r);
      for (std::int64_t i = 0; i < x.extent(1); ++i) to[i] *= recurrent::sigmoid(from[i]);
    });
  }

  void multiply_rows(Rows x, ConstRows factors) {
    each(x, [&](std::int64_t r) {
      float* const to = x.row(r);
      const float* const from = factors.row(r);
      for (std::int64_t i = 0; i < x.extent(1); ++i) to[i] *= from[i];
    });
  }

  void copy_rows(ConstRows x, Rows to) {
    each(to, [&](std::int64_t r) { std::copy_n(x.row(r), to.extent(1), to.row(r)); });
  }

  void match_rows(Rows x, ConstRows like) {
    each(x, [&](std::int64_t r) {
      const std::int64_t width = x.extent(1);
      float* const to = x.row(r);
      const float factor =
          std::sqrt(mean_square(like.row(r), width)) / std::sqrt(std::max(mean_square(to, width), 1e-5f));
      for (std::int64_t i = 0; i < width; ++i) to[i] *= factor;
    });
  }

  void mix_streams(Rows streams, ConstRows weights) {
    const std::int64_t rows = weights.extent(0), count = streams.extent(0) / rows;
    each({streams.data, rows, streams.extent(1)}, [&](std::int64_t r) {
      float sums[most_streams][block];
      each_block(streams.extent(1), [&](std::int64_t first, std::int64_t columns) {
        for (std::int64_t j = 0; j < count; ++j) {
          std::copy_n(streams.row(j * rows + r) + first, columns, sums[j]);
          for (std::int64_t i = 0; i < count; ++i) {
            const float weight = weights(r, j * count + i);
            const float* const from = streams.row(i * rows + r) + first;
            for (std::int64_t c = 0; c < columns; ++c) sums[j][c] += weight * from[c];
          }
        }
        for (std::int64_t j = 0; j < count; ++j) std::copy_n(sums[j], columns, streams.row(j * rows + r) + first);
      });
    });
  }

  void correct_streams(Rows streams, ConstRows factors, ConstRows x) {
    const std::int64_t rows = factors.extent(0), count = streams.extent(0) / rows;
    each({streams.data, rows, streams.extent(1)}, [&](std::int64_t r) {
      float change[block];
      each_block(streams.extent(1), [&](std::int64_t first, std::int64_t columns) {
        const float *const now = x.row(r) + first, *const before = streams.row(r) + first;
        for (std::int64_t c = 0; c < columns; ++c) change[c] = now[c] - before[c];
        for (std::int64_t j = 0; j < count; ++j) {
          const float factor = 1 + factors(r, j);
          float* const to = streams.row(j * rows + r) + first;
          for (std::int64_t c = 0; c < columns; ++c) to[c] += factor * change[c];
        }
      });
    });
  }

  void gate_some(Rows gate_up, float cutoff, Activation activation, Rows out) {
    each(out, [&](std::int64_t r) {
      const std::int64_t width = out.extent(1);
      float* const gate = gate_up.row(r);
      const auto count = static_cast<float>(width);
      const float mean = sum_of(width, [&](std::int64_t i) { return gate[i]; }) / count;
      const auto square = [&](std::int64_t i) { return (gate[i] - mean) * (gate[i] - mean); };
      const float least = mean + cutoff * std::sqrt(sum_of(width, square) / count);
      for (std::int64_t i = 0; i < width; ++i) gate[i] = std::max(gate[i] - least, 0.0f);
      step().activate_row(activation, gate, gate + width, width, out.row(r));
    });
  }

 private:
  static constexpr std::int64_t block = 64;  // numbers of a row that mix_streams and correct_streams compute together

  Step& step() { return static_cast<Step&>(*this); }

  template <class Use>
  void each(Rows rows, const Use& use) {
    step().each_row(rows, use);
  }

  /// Calls use(first, columns) for the parts of a row.
  template <class Use>
  static void each_block(std::int64_t width, const Use& use) {
    for (std::int64_t first = 0; first < width; first += block) use(first, std::min(block, width - first));
  }
};

}}}
