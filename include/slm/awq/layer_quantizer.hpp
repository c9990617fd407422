// LayerQuantizer: prepares one fp32 block for rounding: searches and folds scales, clips weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "slm/awq/folds.hpp"
#include "slm/awq/layer_inputs.hpp"
#include "slm/awq/scale_search.hpp"
#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

class LayerQuantizer {
 public:
  LayerQuantizer(const ModelConfig& shape, FloatLayer& layer, LayerInputs& inputs, BlockRunner& runner,
                 const Rounding& rounding)
      : shape_(shape), layer_(layer), inputs_(inputs), runner_(runner), rounding_(rounding) {}

  /// Searches every fold against the original weights. `told`: called with the progress, 0..1.
  std::vector<SearchOutcome> search(std::span<const Fold> folds, const std::function<void(double)>& told) {
    std::vector<SearchOutcome> outcomes;
    for (const Fold fold : folds) {
      SearchOutcome& outcome = outcomes.emplace_back();
      outcome.fold = fold;
      const std::vector<FloatLinear*> read_by = consumers(fold);
      if (std::all_of(read_by.begin(), read_by.end(), [&](auto* linear) { return rounding_.fits(*linear); })) {
        outcome.scales = search_scales(std::span<FloatLinear* const>(read_by), input(fold).mean_magnitude(),
                                       features(fold), rounding_, error(fold), outcome, [&](double share) {
                                         const auto before = static_cast<double>(outcomes.size() - 1);
                                         told((before + share) / static_cast<double>(folds.size()));
                                       });
      }
    }
    return outcomes;
  }

  void apply(std::span<const SearchOutcome> outcomes) {
    for (const SearchOutcome& outcome : outcomes) {
      if (!outcome.scales.empty()) apply(outcome.fold, outcome.scales);
    }
  }

  /// Moves scales through a fold, which does not change the block's function.   scales [features(fold).count]
  void apply(Fold fold, std::span<const float> scales) {
    const SharedFeatures shared = features(fold);
    std::vector<float> columns;
    for (const std::size_t feature : shared.of) columns.push_back(scales[feature]);
    for (FloatLinear* linear : consumers(fold)) linear->multiply_columns(columns);
    input(fold).divide(columns);
    if (fold == Fold::norm_to_qkv_and_up) inputs_.gate_up.divide(columns);
    switch (fold) {
      case Fold::norm_to_qkv:
      case Fold::norm_to_qkv_and_up: return divide_norm(layer_.weights.attention_norm, scales);
      case Fold::norm_to_up: return divide_norm(layer_.weights.mlp_norm, scales);
      case Fold::value_to_out: return layer_.qkv.divide_rows(first_value_row(), scales);
      case Fold::up_to_down: return layer_.gate_up.divide_rows(shape_.gated ? shape_.ffn : 0, scales);
      case Fold::activation_to_down: {
        FloatVector& divisor = layer_.weights.down_divisor;
        if (divisor.size() == 0) divisor = ones(scales.size());
        for (std::size_t i = 0; i < scales.size(); ++i) divisor.data()[i] *= scales[i];
      }
    }
  }

  /// Input features of the consumers that must share a scale, such as query heads that read one value head.
  SharedFeatures features(Fold fold) const {
    if (fold != Fold::value_to_out) return SharedFeatures::none(static_cast<std::size_t>(consumer_width(fold)));
    SharedFeatures features;
    const int group = shape_.heads / shape_.kv_heads;
    for (int h = 0; h < shape_.heads; ++h) {
      for (int d = 0; d < shape_.head_dim; ++d) {
        features.of.push_back(static_cast<std::size_t>(h / group * shape_.head_dim + d));
      }
    }
    features.count = static_cast<std::size_t>(shape_.kv_heads) * static_cast<std::size_t>(shape_.head_dim);
    return features;
  }

  /// Clips weights where a finer grid outweighs the clipping error. Queries and keys are not clipped, because their
  /// errors are multiplied in the scores.
  void clip() {
    clip_rows(layer_.qkv, inputs_.qkv, first_value_row());
    clip_rows(layer_.attention_out, inputs_.attention_out, 0);
    clip_rows(layer_.gate_up, inputs_.gate_up, 0);
    clip_rows(layer_.down, inputs_.down, 0);
  }

 private:
  using Matrices = std::span<const FloatMatrix>;

  std::vector<FloatLinear*> consumers(Fold fold) {
    switch (fold) {
      case Fold::norm_to_qkv: return {&layer_.qkv};
      case Fold::norm_to_qkv_and_up: return {&layer_.qkv, &layer_.gate_up};
      case Fold::value_to_out: return {&layer_.attention_out};
      case Fold::norm_to_up: return {&layer_.gate_up};
      case Fold::up_to_down:
      case Fold::activation_to_down: return {&layer_.down};
    }
    return {};
  }

  std::int64_t consumer_width(Fold fold) const {
    const bool wide = fold == Fold::up_to_down || fold == Fold::activation_to_down;
    return wide ? shape_.ffn : shape_.hidden;
  }

  InputStatistics& input(Fold fold) {
    switch (fold) {
      case Fold::norm_to_qkv:
      case Fold::norm_to_qkv_and_up: return inputs_.qkv;
      case Fold::value_to_out: return inputs_.attention_out;
      case Fold::norm_to_up: return inputs_.gate_up;
      default: return inputs_.down;
    }
  }

  std::int64_t first_value_row() const { return layer_.qkv.out() - std::int64_t{shape_.kv_heads} * shape_.head_dim; }

  static void divide_norm(NormWeights<backend::Cpu>& norm, std::span<const float> scales) {
    for (std::size_t i = 0; i < scales.size(); ++i) norm.weight.data()[i] /= scales[i];
    for (std::size_t i = 0; i < norm.bias.size(); ++i) norm.bias.data()[i] /= scales[i];
  }

  static FloatVector ones(std::size_t count) {
    FloatVector vector(count);
    std::fill_n(vector.data(), count, 1.0f);
    return vector;
  }

  /// The error of the block's contribution to the residual stream, on the searched sequences.
  OutputError error(Fold fold) {
    switch (fold) {
      case Fold::norm_to_qkv:
        return squares_of([this](Matrices rounded, std::size_t i) {
          return difference(attention(rounded[0], i), inputs_.searched[i].attention_y);
        });
      case Fold::norm_to_up:
        return squares_of([this](Matrices rounded, std::size_t i) {
          return difference(mlp(rounded[0], i), inputs_.searched[i].mlp_y);
        });
      case Fold::norm_to_qkv_and_up:
        return squares_of([this](Matrices rounded, std::size_t i) {
          Rows change = difference(attention(rounded[0], i), inputs_.searched[i].attention_y);
          const Rows other = difference(mlp(rounded[1], i), inputs_.searched[i].mlp_y);
          for (std::size_t k = 0; k < change.size(); ++k) change[k] += other[k];
          return change;
        });
      case Fold::value_to_out:
        return squares_of([this](Matrices rounded, std::size_t i) {
          return difference(runner_.projected(rounded[0], layer_.weights.attention_out_bias, inputs_.searched[i].mixed),
                            inputs_.searched[i].attention_y);
        });
      default:
        return squares_of([this](Matrices rounded, std::size_t i) {
          return difference(runner_.projected(rounded[0], layer_.weights.down_bias, inputs_.searched[i].gated),
                            inputs_.searched[i].mlp_y);
        });
    }
  }

  Rows attention(const FloatMatrix& qkv, std::size_t i) {
    const Rows mixed = runner_.mixed(layer_, qkv, inputs_.searched[i].attention_x);
    return runner_.attention(layer_, thinned(mixed, std::int64_t{shape_.heads} * shape_.head_dim));
  }
  Rows mlp(const FloatMatrix& gate_up, std::size_t i) {
    return runner_.mlp(layer_, runner_.gated(layer_, gate_up, inputs_.searched[i].mlp_x));
  }

  static Rows difference(Rows a, const Rows& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
    return a;
  }

  template <class Change>
  OutputError squares_of(Change change) const {
    OutputError error{.of =
                          [change](Matrices rounded, std::size_t i) {
                            double sum = 0;
                            for (const float value : change(rounded, i)) sum += double{value} * double{value};
                            return sum;
                          },
                      .sequences = inputs_.searched.size(),
                      .elements = 0};
    for (const SequenceActivations& sequence : inputs_.searched) {
      error.elements += static_cast<double>(sequence.mlp_y.size());
    }
    return error;
  }

  void clip_rows(FloatLinear& linear, const InputStatistics& input, std::int64_t first) {
    if (!rounding_.fits(linear)) return;
    const auto group = static_cast<std::size_t>(input.group);
    parallel_for(*rounding_.pool, linear.out() - first, [&](std::int64_t n) {
      const std::span<float> row = linear.row(first + n);
      for (std::size_t g = 0; g < row.size() / group; ++g) {
        const std::span<float> weights = row.subspan(g * group, group);
        const auto clip = awq::best_clip<float>(rounding_.quantizer, std::span<const float>(weights),
                                                input.moments.data() + g * group * group);
        for (float& weight : weights) weight = std::clamp(weight, -clip.limit, clip.limit);
      }
    });
  }

  const ModelConfig& shape_;
  FloatLayer& layer_;
  LayerInputs& inputs_;
  BlockRunner& runner_;
  Rounding rounding_;
};

}}}
