// LayerQuantizer: one block from fp32 to codes: scales are searched and folded, weights clipped, then rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/quantize/layer_inputs.hpp"
#include "slm/quantize/scale_search.hpp"

namespace slm::quantize {

class LayerQuantizer {
 public:
  LayerQuantizer(const ModelConfig& shape, FloatLayer& layer, LayerInputs& inputs, BlockRunner& runner,
                 const Rounding& rounding)
      : shape_(shape), layer_(layer), inputs_(inputs), runner_(runner), rounding_(rounding) {}

  /// Searches every fold against the original weights, then applies all of them: the block computes what it did before.
  /// told(share) is called with 0..1 as candidates are tried.
  std::vector<SearchOutcome> smooth(const std::function<void(double)>& told) {
    std::vector<SearchOutcome> outcomes;
    std::vector<std::function<void()>> folds;
    double tried = 0;
    const auto add = [&](const char* name, FloatLinear& consumer, InputStatistics& input,
                         const SharedFeatures& features, const Loss& loss, auto&& divide_producer) {
      if (!rounding_.fits(consumer)) return;
      SearchOutcome& outcome = outcomes.emplace_back();
      outcome.fold = name;
      FloatLinear* const consumers[] = {&consumer};
      std::vector<float> scales =
          search_scales(std::span(consumers), input.mean_magnitude(), features, rounding_, loss, outcome,
                        [&] { told(++tried / (4.0 * static_cast<double>(awq::candidates().size()))); });
      if (outcome.chosen.is_identity()) return;
      folds.push_back([&consumer, &input, features, divide_producer, scales = std::move(scales)] {
        const std::vector<float> columns = expand(scales, features);
        consumer.multiply_columns(columns);
        input.divide(columns);
        divide_producer(std::span<const float>(scales));
      });
    };
    const auto divide_norm = [](std::vector<float>& norm) {
      return [&norm](std::span<const float> scales) {
        for (std::size_t i = 0; i < scales.size(); ++i) norm[i] /= scales[i];
      };
    };
    const auto hidden = SharedFeatures::none(static_cast<std::size_t>(shape_.hidden));
    add("attention_norm -> qkv", layer_.qkv, inputs_.qkv, hidden, attention_loss(), divide_norm(layer_.attention_norm));
    add("v -> attention_out", layer_.attention_out, inputs_.attention_out, shared_by_kv_heads(),
        linear_loss(layer_.attention_out, inputs_.attention_mixed, inputs_.attention_y),
        [this](std::span<const float> scales) {
          layer_.qkv.divide_rows(layer_.qkv.out() - std::int64_t{shape_.kv_heads} * shape_.head_dim, scales);
        });
    add("mlp_norm -> gate_up", layer_.gate_up, inputs_.gate_up, hidden, mlp_loss(), divide_norm(layer_.mlp_norm));
    add("up -> down", layer_.down, inputs_.down, SharedFeatures::none(static_cast<std::size_t>(shape_.ffn)),
        linear_loss(layer_.down, inputs_.mlp_gated, inputs_.mlp_y),
        [this](std::span<const float> scales) { layer_.gate_up.divide_rows(shape_.ffn, scales); });
    for (const auto& fold : folds) fold();
    return outcomes;
  }

  /// Cuts off the weights whose loss harms less than a finer grid helps. Queries and keys are left alone: what they
  /// lose is multiplied in the scores.
  void clip() {
    const std::int64_t first_value_row = layer_.qkv.out() - std::int64_t{shape_.kv_heads} * shape_.head_dim;
    clip_rows(layer_.qkv, inputs_.qkv, first_value_row);
    clip_rows(layer_.attention_out, inputs_.attention_out, 0);
    clip_rows(layer_.gate_up, inputs_.gate_up, 0);
    clip_rows(layer_.down, inputs_.down, 0);
  }

 private:
  using Matrices = std::span<const DenseMatrix<Fp32>>;
  using Loss = std::function<double(Matrices)>;

  static double squared_difference(const Rows& a, const Rows& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i] - b[i]} * double{a[i] - b[i]};
    return sum;
  }

  /// Mean over the kept sequences of run(sequence) against what the unrounded weights gave.
  template <class Run>
  static Loss loss_of(const std::vector<Rows>& expected, Run run) {
    return [&expected, run](Matrices candidate) {
      double sum = 0;
      std::size_t elements = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        sum += squared_difference(run(candidate, i), expected[i]);
        elements += expected[i].size();
      }
      return sum / static_cast<double>(elements);
    };
  }

  Loss attention_loss() {
    return loss_of(inputs_.attention_y, [this](Matrices candidate, std::size_t i) {
      Rows mixed;
      return runner_.attention(layer_, candidate[0], inputs_.attention_x[i], mixed);
    });
  }

  Loss mlp_loss() {
    return loss_of(inputs_.mlp_y, [this](Matrices candidate, std::size_t i) {
      Rows gated;
      return runner_.mlp(layer_, candidate[0], inputs_.mlp_x[i], gated);
    });
  }

  /// The error of a linear layer's own output.
  Loss linear_loss(const FloatLinear& linear, const std::vector<Rows>& input, const std::vector<Rows>& expected) {
    return loss_of(expected, [this, &linear, &input](Matrices candidate, std::size_t i) {
      return runner_.projected(linear, candidate[0], input[i]);
    });
  }

  /// Query heads that read one value head share its scales.
  SharedFeatures shared_by_kv_heads() const {
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

  void clip_rows(FloatLinear& linear, const InputStatistics& input, std::int64_t first) {
    if (!rounding_.fits(linear)) return;
    const auto group = static_cast<std::size_t>(input.group);
    parallel_for(rounding_.threads, linear.out() - first, [&](std::int64_t n) {
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

}  // namespace slm::quantize
