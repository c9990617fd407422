// Searches the scales of one fold: the candidate whose rounded weights change the block's output least.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "slm/awq/awq_search.hpp"
#include "slm/awq/float_layer.hpp"
#include "slm/awq/folds.hpp"
#include "slm/awq/parallel.hpp"
#include "slm/awq/rounding.hpp"
#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// The result of a search; losses are mean squared output errors.
struct SearchOutcome {
  Fold fold = Fold::norm_to_qkv;
  double rounded = 0;         // loss of plain rounding
  double best = 0;            // loss with the scales
  awq::Candidate chosen;      // the identity if nothing was better
  std::vector<float> scales;  // one per group of features that share a scale; empty if a layer does not fit
};

/// Q(W * s) / s
inline std::vector<float> round_trip_scaled(const FloatLinear& linear, std::span<const float> scales,
                                            const Rounding& rounding) {
  std::vector<float> rounded(linear.weight.size());
  parallel_for(*rounding.pool, linear.out(), [&](std::int64_t n) {
    awq::round_trip_scaled<float>(rounding.quantizer, linear.row(n), scales,
                                  static_cast<std::size_t>(rounding.group_of(linear.in)),
                                  rounded.data() + n * linear.in);
  });
  return rounded;
}

/// Like round_trip_scaled, with the stored block type.
inline std::vector<float> round_trip_blocks(const FloatLinear& linear, std::span<const float> scales,
                                            const Rounding& rounding) {
  std::vector<float> rounded = linear.weight;
  parallel_for(*rounding.pool, linear.out(), [&](std::int64_t n) {
    const std::span<float> row(rounded.data() + n * linear.in, scales.size());
    for (std::size_t k = 0; k < row.size(); ++k) row[k] *= scales[k];
    rounding.round_trip_blocks(row);
    for (std::size_t k = 0; k < row.size(); ++k) row[k] /= scales[k];
  });
  return rounded;
}

/// Groups of input features that must share a scale: equal indices, 0..count-1.
struct SharedFeatures {
  std::vector<std::size_t> of;  // [in]
  std::size_t count = 0;

  static SharedFeatures none(std::size_t in) {
    SharedFeatures features{std::vector<std::size_t>(in), in};
    for (std::size_t k = 0; k < in; ++k) features.of[k] = k;
    return features;
  }
};

/// The output error of rounded weights: the summed squared error of a calibration sequence.
struct OutputError {
  std::function<double(std::span<const FloatMatrix> rounded, std::size_t sequence)> of;
  std::size_t sequences = 1;
  double elements = 1;  // number of output elements over all sequences
};

/// Finds the best candidate for consumers, linear layers with the same input. x_mean: mean |input| [in]. All candidates
/// are tried on the first sequence; the best quarter, plus plain rounding, on four times as many, and so on up to all
/// sequences. `told`: called with the progress, 0..1. GGUF blocks are slow to encode: candidates are compared by the
/// quantizer, and the best one must beat plain rounding with the blocks. -> [features.count]
template <class Told>
std::vector<float> search_scales(std::span<FloatLinear* const> consumers, std::span<const float> x_mean,
                                 const SharedFeatures& features, const Rounding& rounding, const OutputError& error,
                                 SearchOutcome& outcome, Told&& told) {
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

  struct Trial {
    awq::Candidate candidate;
    std::vector<float> scales;
    double error = 0;  // over the sequences so far
  };
  const auto add_error = [&](Trial& trial, const auto& round_trip, std::size_t begin, std::size_t end) {
    std::vector<float> expanded(in);
    for (std::size_t k = 0; k < in; ++k) expanded[k] = trial.scales[features.of[k]];
    std::vector<std::vector<float>> rounded;
    std::vector<FloatMatrix> matrices;
    for (const FloatLinear* linear : consumers) {
      rounded.push_back(round_trip(*linear, expanded, rounding));
      matrices.push_back(matrix_of(rounded.back(), linear->in));
    }
    for (std::size_t i = begin; i < end; ++i) trial.error += error.of(matrices, i);
    if (std::isnan(trial.error)) trial.error = std::numeric_limits<double>::infinity();
  };
  const auto less = [](const Trial& a, const Trial& b) { return a.error < b.error; };

  std::vector<Trial> trials;  // the first is plain rounding
  for (const awq::Candidate candidate : awq::candidates()) {
    trials.push_back({candidate, awq::scales_of<float>(candidate, x, w)});
  }
  double rounds = 1, round = 0;
  for (std::size_t end = 1; end < error.sequences; end *= 4) ++rounds;
  for (std::size_t begin = 0, end = 1; begin < error.sequences; ++round) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      add_error(trials[i], round_trip_scaled, begin, end);
      told((round + static_cast<double>(i + 1) / static_cast<double>(trials.size())) / rounds);
    }
    begin = std::exchange(end, std::min(4 * end, error.sequences));
    if (begin == error.sequences) break;
    std::stable_sort(trials.begin() + 1, trials.end(), less);
    trials.resize((trials.size() + 3) / 4 + 1);
  }
  Trial best = *std::min_element(trials.begin(), trials.end(), less);
  if (std::isinf(best.error)) {
    throw Error("quantize.non-finite",
                text("expected finite activations of '", consumers.front()->parts.front().name,
                     "' on the calibration text, found others"),
                "Check that the checkpoint works in fp32, or use another text");
  }
  Trial alone = trials.front();
  if (rounding.blocks && !best.candidate.is_identity()) {
    for (Trial* trial : {&alone, &best}) {
      trial->error = 0;
      add_error(*trial, round_trip_blocks, 0, error.sequences);
    }
    if (!less(best, alone)) best = alone;
  }
  outcome.chosen = best.candidate;
  outcome.rounded = alone.error / error.elements;
  outcome.best = best.error / error.elements;
  return best.scales;
}

}}}
