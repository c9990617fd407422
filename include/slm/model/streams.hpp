// Residual streams: what a block does before and after the computation of the first stream, and the passes around all
// blocks. See ResidualStreams.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/model/block_inputs.hpp"
#include "slm/model/stream_weights.hpp"

namespace slm { inline namespace v0_1 {

template <Backend B>
View<typename B::Activation, 2> stream_of(const Activations<B>& rows, std::int64_t stream) {
  const std::int64_t count = rows.x.extent(0);
  return rows.streams.slice(stream * count, count);
}

/// coefficients [rows, n]: matrix . tanh(router . norm(x)), in the memory of mixed. Uses the memory of q.
template <Backend B, class Step, WeightFormat Format, class Matrix>
View<typename B::Activation, 2> stream_coefficients(Step& step, const StreamWeights<Format, B>& weights,
                                                    const Matrix& matrix, float epsilon, const Activations<B>& rows) {
  const std::int64_t count = rows.x.extent(0);
  const View<typename B::Activation, 2> routed{rows.q.data, count, weights.router.out},
      coefficients{rows.mixed.data, count, matrix.out};
  const Norm norm{.weight = weights.router_norm.data(), .epsilon = epsilon};
  const Activation tanh = ActivationKind::soft_cap;  // of cap 1
  step.mlp(rows.x, norm, Linear{weights.router}, tanh, nullptr, routed);
  step.mlp(routed, Norm{.kind = NormKind::none}, Linear{matrix}, ActivationKind::identity, nullptr, coefficients);
  return coefficients;
}

/// Computes the streams before a layer. x becomes the first one.
template <Backend B, class Step, WeightFormat Format>
void predict_streams(Step& step, const StreamWeights<Format, B>& weights, float epsilon, const Activations<B>& rows) {
  step.copy_rows(stream_of<B>(rows, 0), rows.x);
  step.mix_streams(rows.streams, stream_coefficients<B>(step, weights, weights.prediction, epsilon, rows));
  step.copy_rows(stream_of<B>(rows, 0), rows.x);
}

/// x = (x + normed + norm(out . in . normed)) / sqrt(2)
template <Backend B, class Step, WeightFormat Format>
void add_low_rank(Step& step, const StreamWeights<Format, B>& weights, float epsilon, const Activations<B>& rows) {
  const Norm as_it_is{.kind = NormKind::none};
  const View<typename B::Activation, 2> low{rows.q.data, rows.x.extent(0), weights.low_rank_in.out};
  step.mlp(rows.normed, as_it_is, Linear{weights.low_rank_in}, ActivationKind::identity, nullptr, low);
  step.mlp(low, as_it_is, Linear{weights.low_rank_out}, ActivationKind::identity, nullptr, rows.branch);
  step.add(rows.branch, Norm{.weight = weights.low_rank_norm.data(), .epsilon = epsilon}, rows.x);
  step.add(rows.normed, as_it_is, rows.x);
  step.scale(rows.x, std::sqrt(0.5f));
}

/// Corrects the streams by the layer's result x. x becomes the first one, times a vector in some models.
template <Backend B, class Step, WeightFormat Format>
void correct_streams(Step& step, const StreamWeights<Format, B>& weights, float epsilon, const Activations<B>& rows) {
  step.correct_streams(rows.streams, stream_coefficients<B>(step, weights, weights.correction, epsilon, rows), rows.x);
  step.copy_rows(stream_of<B>(rows, 0), rows.x);
  if (weights.scale.size() == 0) return;
  View<const float, 2> scale{weights.scale.data(), rows.x.extent(0), rows.x.extent(1)};
  scale.strides[0] = 0;
  step.multiply_rows(rows.x, scale);
}

/// Makes the streams from the embedding x: itself, and its products of its size.
template <Backend B, class Step, class Matrix>
void split_streams(Step& step, const std::vector<Matrix>& matrices, const Activations<B>& rows) {
  step.copy_rows(rows.x, stream_of<B>(rows, 0));
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const auto stream = stream_of<B>(rows, static_cast<std::int64_t>(i) + 1);
    step.mlp(rows.x, Norm{.kind = NormKind::none}, Linear{matrices[i]}, ActivationKind::identity, nullptr, stream);
    step.match_rows(stream, rows.x);
  }
}

/// x = the mean of the first stream and of the products of the others, in its size. Overwrites the streams.
template <Backend B, class Step, class Matrix>
void merge_streams(Step& step, const std::vector<Matrix>& matrices, const Activations<B>& rows) {
  const Norm as_it_is{.kind = NormKind::none};
  step.copy_rows(stream_of<B>(rows, 0), rows.x);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const auto from = stream_of<B>(rows, static_cast<std::int64_t>(i) + 1);
    step.mlp(from, as_it_is, Linear{matrices[i]}, ActivationKind::identity, nullptr, rows.branch);
    step.match_rows(rows.branch, stream_of<B>(rows, 0));
    step.add(rows.branch, as_it_is, rows.x);
  }
  step.scale(rows.x, 1 / static_cast<float>(matrices.size() + 1));
}

}}
