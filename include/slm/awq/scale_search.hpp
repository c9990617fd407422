// Searches the scales of one fold: the candidate whose rounded weights change the block's output least.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "slm/awq/awq_search.hpp"
#include "slm/awq/float_layer.hpp"
#include "slm/awq/folds.hpp"
#include "slm/awq/parallel.hpp"
#include "slm/awq/rounding.hpp"
#include "slm/core/error.hpp"

namespace slm::quantize {

/// What a search found; losses are mean squared errors of an output.
struct SearchOutcome {
  Fold fold = Fold::norm_to_qkv;
  double rounded = 0;         // loss of rounding alone
  double best = 0;            // loss with the scales
  awq::Candidate chosen;      // the identity when nothing was better
  std::vector<float> scales;  // of the features that share one; none where a layer does not fit
};

/// Q(W * s) / s
inline std::vector<float> round_trip_scaled(const FloatLinear& linear, std::span<const float> scales,
                                            const Rounding& rounding) {
  std::vector<float> rounded(linear.weight.size());
  parallel_for(rounding.threads, linear.out(), [&](std::int64_t n) {
    awq::round_trip_scaled<float>(rounding.quantizer, linear.row(n), scales,
                                  static_cast<std::size_t>(rounding.group_of(linear.in)),
                                  rounded.data() + n * linear.in);
  });
  return rounded;
}

/// The same with the blocks that are stored.
inline std::vector<float> round_trip_blocks(const FloatLinear& linear, std::span<const float> scales,
                                            const Rounding& rounding) {
  std::vector<float> rounded = linear.weight;
  parallel_for(rounding.threads, linear.out(), [&](std::int64_t n) {
    const std::span<float> row(rounded.data() + n * linear.in, scales.size());
    for (std::size_t k = 0; k < row.size(); ++k) row[k] *= scales[k];
    rounding.round_trip_blocks(row);
    for (std::size_t k = 0; k < row.size(); ++k) row[k] /= scales[k];
  });
  return rounded;
}

/// Features of the consumers' input that must share a scale have the same number; 0..count-1.
struct SharedFeatures {
  std::vector<std::size_t> of;  // [in]
  std::size_t count = 0;

  static SharedFeatures none(std::size_t in) {
    SharedFeatures features{std::vector<std::size_t>(in), in};
    for (std::size_t k = 0; k < in; ++k) features.of[k] = k;
    return features;
  }
};

/// Tries every candidate. consumers: linear layers that read the same input, whose mean magnitude is x_mean [in].
/// loss(matrices, bound) is the loss of the block with one rounded matrix for each consumer, or any
/// number from `bound` on where the loss is no less; tried() is called after each candidate. Blocks of GGUF take long
/// to encode: candidates are compared by the quantizer, and the best of them must beat rounding alone with the blocks.
/// -> [features.count]
template <class Loss, class Tried>
std::vector<float> search_scales(std::span<FloatLinear* const> consumers, std::span<const float> x_mean,
                                 const SharedFeatures& features, const Rounding& rounding, Loss&& loss,
                                 SearchOutcome& outcome, Tried&& tried) {
  const auto in = static_cast<std::size_t>(consumers.front()->in);
  std::vector<float> w_sums(in);
  std::int64_t rows = 0;
  for (const FloatLinear* linear : consumers) {
    const auto group = static_cast<std::size_t>(rounding.group_of(linear->in));
    awq::add_relative_weights<float>(linear->weight, in, group, w_sums);
    rows += linear->out();
  }
  std::vector<float> x(features.count), w(features.count), members(features.count);
  for (std::size_t k = 0; k < in; ++k) {
    const std::size_t f = features.of[k];
    x[f] = std::max(x[f], x_mean[k]);
    w[f] += w_sums[k] / static_cast<float>(rows);
    ++members[f];
  }
  for (std::size_t f = 0; f < features.count; ++f) w[f] /= members[f];

  constexpr double unbounded = std::numeric_limits<double>::infinity();
  const auto loss_of = [&](std::span<const float> scales, const auto& round_trip, double bound) {
    std::vector<float> expanded(in);
    for (std::size_t k = 0; k < in; ++k) expanded[k] = scales[features.of[k]];
    std::vector<std::vector<float>> rounded;
    std::vector<FloatMatrix> matrices;
    for (const FloatLinear* linear : consumers) {
      rounded.push_back(round_trip(*linear, expanded, rounding));
      matrices.push_back(matrix_of(rounded.back(), linear->in));
    }
    return loss(std::span<const FloatMatrix>(matrices), bound);
  };
  std::vector<float> best;
  outcome.best = unbounded;
  for (const awq::Candidate candidate : awq::candidates()) {
    std::vector<float> scales = awq::scales_of<float>(candidate, x, w);
    const double found = loss_of(scales, round_trip_scaled, outcome.best);
    if (candidate.is_identity()) outcome.rounded = found;
    if (found < outcome.best) {
      outcome.best = found;
      outcome.chosen = candidate;
      best = std::move(scales);
    }
    tried();
  }
  if (best.empty()) {
    throw Error(
        "quantize.non-finite",
        text("the activations of '", consumers.front()->parts.front().name, "' are not finite on the calibration text"),
        "Check that the checkpoint works in fp32, or choose another text");
  }
  if (rounding.blocks && !outcome.chosen.is_identity()) {
    const std::vector<float> ones(features.count, 1.0f);
    outcome.rounded = loss_of(ones, round_trip_blocks, unbounded);
    outcome.best = loss_of(best, round_trip_blocks, outcome.rounded);
    if (!(outcome.best < outcome.rounded)) {
      outcome.best = outcome.rounded;
      outcome.chosen = {};
      best = ones;
    }
  }
  return best;
}

}  // namespace slm::quantize
