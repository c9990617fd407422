// BlockRunner: runs attention and MLP of a transformer block on fp32 weights, each up to its last product and without
// the residual.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "slm/awq/float_layer.hpp"
#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/alibi.hpp"
#include "slm/model/block.hpp"
#include "slm/model/kv_memory.hpp"
#include "slm/model/page_pool.hpp"
#include "slm/model/rope.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Activations of one sequence.
using Rows = std::vector<float>;  // [tokens, width]

class BlockRunner {
 public:
  BlockRunner(const Checkpoint& checkpoint, backend::Cpu device)
      : config_{checkpoint.config()},
        settings_(checkpoint.settings()),
        device_(std::move(device)),
        layout_(one_layer(config_.value), without_window(settings_), KvFormat::f32),
        pool_(layout_, std::make_unique<KvMemoryOf<backend::Cpu>>(device_)) {
    if (config_.value.positions == Positions::rope) {
      frequencies_ = inverse_frequencies(config_.value.rotary_dim(), settings_);
      if (settings_.has_two_ropes()) {
        windowed_frequencies_ = windowed_frequencies(config_.value.rotary_dim(), settings_);
      }
    }
    if (config_.value.positions == Positions::alibi) slopes_ = alibi_slopes(config_.value.heads, settings_);
  }

  /// Selects the block for the next calls.
  void enter(int layer) { layer_ = layer; }

  Rows normalized(const NormWeights<backend::Cpu>& norm, Rows x) {
    device_.begin(StepPlan{})
        .normalize(view(x, config_.value.hidden), norm_of<backend::Cpu>(norm, config_.value.norm, epsilon()));
    return x;
  }

  /// The input of the output projection of attention(norm(x)), with `qkv` instead of the layer's own weight.
  Rows mixed(FloatLayer& layer, FloatMatrix qkv, const Rows& x) {
    const ModelConfig& shape = config_.value;
    const std::int64_t width = std::int64_t{shape.heads} * shape.head_dim;
    const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / shape.hidden;
    const BlockSettings settings = block();
    Rows input = x, q(static_cast<std::size_t>(tokens * width)), mixed(q.size());
    const Norm norm = input_norm(layer.weights.attention_norm);
    const Replaced replaced(layer.weights.qkv, std::move(qkv));
    in_pieces(tokens, [&](int first, int count) {
      const Activations<backend::Cpu> rows{.x = view(input, shape.hidden).slice(first, count),
                                           .q = view(q, width).slice(first, count),
                                           .mixed = view(mixed, width).slice(first, count),
                                           .gated = {}};
      auto step = device_.begin(plan(first, count));
      run_attention<backend::Cpu>(step, config_, layer.weights, settings, layout_.layer(0), norm, rows);
    });
    return mixed;
  }
  Rows attention(FloatLayer& layer, const Rows& mixed) {
    return projected(layer.weights.attention_out, layer.weights.attention_out_bias, mixed);
  }

  /// The input of the down projection of mlp(norm(x)), with `gate_up` instead of the layer's own weight.
  Rows gated(FloatLayer& layer, FloatMatrix gate_up, const Rows& x) {
    const ModelConfig& shape = config_.value;
    const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / shape.hidden;
    Rows input = x, gated(static_cast<std::size_t>(tokens * shape.ffn));
    const bool shared = shape.order == BlockOrder::parallel;
    const Norm norm = input_norm(shared ? layer.weights.attention_norm : layer.weights.mlp_norm);
    const Replaced replaced(layer.weights.gate_up, std::move(gate_up));
    in_pieces(tokens, [&](int first, int count) {
      const Activations<backend::Cpu> rows{.x = view(input, shape.hidden).slice(first, count),
                                           .q = {},
                                           .mixed = {},
                                           .gated = view(gated, shape.ffn).slice(first, count)};
      auto step = device_.begin(StepPlan{});
      run_mlp<backend::Cpu>(step, config_, layer.weights, block(), norm, rows);
    });
    return gated;
  }
  Rows mlp(FloatLayer& layer, const Rows& gated) {
    return projected(layer.weights.down, layer.weights.down_bias, gated);
  }

  /// x += output, as at the end of attention or MLP.   norm: of outputs, if the block has it
  void add(Rows& x, const NormWeights<backend::Cpu>& norm, const Rows& output) {
    const bool normed = norms_outputs(config_.value.order);
    const Rows added = normed ? normalized(norm, output) : output;
    const float factor = normed ? 1 : settings_.residual_scale;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += factor * added[i];
  }

  /// input . weight^T + bias
  Rows projected(const FloatMatrix& weight, const FloatVector& bias, const Rows& input) {
    const std::int64_t tokens = static_cast<std::int64_t>(input.size()) / weight.in;
    Rows out(static_cast<std::size_t>(tokens * weight.out));
    const View<const float, 2> rows{input.data(), tokens, weight.in};
    in_pieces(tokens, [&](int first, int count) {
      device_.begin(StepPlan{})
          .project(rows.slice(first, count), linear(weight, bias), view(out, weight.out).slice(first, count));
    });
    return out;
  }

 private:
  /// Replaces a matrix while it lives.
  class Replaced {
   public:
    Replaced(FloatMatrix& place, FloatMatrix matrix) : place_(place), held_(std::exchange(place, std::move(matrix))) {}
    Replaced(const Replaced&) = delete;
    Replaced& operator=(const Replaced&) = delete;
    ~Replaced() { place_ = std::move(held_); }

   private:
    FloatMatrix& place_;
    FloatMatrix held_;
  };

  static ModelConfig one_layer(ModelConfig shape) {
    shape.layers = 1;
    return shape;
  }
  static ModelSettings without_window(ModelSettings settings) {
    settings.window = 0;
    return settings;
  }

  /// A step of at most max_rows positions of the sequence. Valid until the next call.
  StepPlan plan(int first, int count) {
    while (static_cast<int>(pages_.size()) * page_positions < first + count) {
      pages_.push_back(pool_.take(0));
      table_.push_back(pages_.back()->memory);
    }
    plan_sequence_ = {
        .first_row = 0, .rows = count, .rope = 0, .first_page = 0, .pages = static_cast<int>(table_.size())};
    plan_rows_.clear();
    for (int r = 0; r < count; ++r) plan_rows_.push_back({.token = 0, .position = first + r, .parent = r - 1});
    return {.rows = plan_rows_, .sequences = {&plan_sequence_, 1}, .pages = table_, .outputs = {}, .draws = {}};
  }

  static View<float, 2> view(Rows& values, std::int64_t width) {
    return {values.data(), static_cast<std::int64_t>(values.size()) / width, width};
  }

  template <class F>
  static void in_pieces(std::int64_t tokens, F&& run) {
    for (std::int64_t first = 0; first < tokens; first += backend::Cpu::max_rows) {
      run(static_cast<int>(first), static_cast<int>(std::min<std::int64_t>(tokens - first, backend::Cpu::max_rows)));
    }
  }

  BlockSettings block() const {
    const auto data = [](const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); };
    return block_settings(config_.value, settings_, layer_,
                          {.inverse_frequency = {data(frequencies_), nullptr},
                           .windowed_frequency = data(windowed_frequencies_),
                           .slopes = data(slopes_)});
  }

  Norm input_norm(const NormWeights<backend::Cpu>& weights) const {
    const ModelConfig& shape = config_.value;
    if (!norms_inputs(shape.order)) return {.kind = NormKind::none};
    return norm_of<backend::Cpu>(weights, shape.norm, epsilon());
  }

  float epsilon() const { return settings_.norm_epsilon; }

  Dynamic config_;
  ModelSettings settings_;
  backend::Cpu device_;
  KvLayout layout_;
  PagePool pool_;
  std::vector<KvPageRef> pages_;  // one layer's keys and values of the current sequence
  std::vector<std::byte*> table_;
  std::vector<PlanRow> plan_rows_;
  PlanSequence plan_sequence_;
  std::vector<float> frequencies_, windowed_frequencies_, slopes_;
  int layer_ = 0;
};

}}}
