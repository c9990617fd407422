// BlockRunner: the two halves of a transformer block on fp32 weights, each without its residual.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/kv_cache.hpp"
#include "slm/model/rope.hpp"
#include "slm/quantize/float_layer.hpp"

namespace slm::quantize {

/// Activations of one sequence.
using Rows = std::vector<float>;  // [tokens, width]

class BlockRunner {
 public:
  BlockRunner(const Checkpoint& checkpoint, backend::Cpu device, int sequence_length)
      : shape_(checkpoint.config()),
        epsilon_(checkpoint.settings().norm_epsilon),
        device_(std::move(device)),
        kv_(one_layer(shape_), sequence_length, device_),
        frequencies_(inverse_frequencies(shape_.head_dim, checkpoint.settings())) {}

  /// norm(x)
  Rows normalized(const Rows& x, std::span<const float> weight) const {
    Rows out(x.size());
    for (std::size_t start = 0; start < x.size(); start += weight.size()) {
      double squares = 0;
      for (std::size_t i = 0; i < weight.size(); ++i) squares += double{x[start + i]} * double{x[start + i]};
      const double mean = squares / static_cast<double>(weight.size());
      const auto scale = static_cast<float>(1 / std::sqrt(mean + double{epsilon_}));
      for (std::size_t i = 0; i < weight.size(); ++i) out[start + i] = x[start + i] * scale * weight[i];
    }
    return out;
  }

  /// attention(norm(x)) with `qkv` for the layer's own; mixed: what the output projection reads.
  Rows attention(const FloatLayer& layer, const DenseMatrix<Fp32>& qkv, const Rows& x, Rows& mixed) {
    const Heads heads{.query = shape_.heads, .kv = shape_.kv_heads, .dim = shape_.head_dim};
    const std::int64_t width = std::int64_t{heads.query} * heads.dim;
    const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / shape_.hidden;
    const Norm norm{.weight = layer.attention_norm.data(), .epsilon = epsilon_};
    const Rope rope{.inverse_frequency = frequencies_.data()};
    Rows q(static_cast<std::size_t>(tokens * width));
    mixed.resize(q.size());
    in_pieces(tokens, [&](std::int64_t first, std::int64_t count) {
      const int position = static_cast<int>(first);
      const auto queries = rows(q, width).slice(first, count);
      device_.qkv(rows(x, shape_.hidden).slice(first, count), norm, qkv, layer.qkv.bias_or_null(), rope, heads,
                  position, queries, kv_.layer(0));
      device_.attend(queries, heads, position, kv_.layer(0), rows(mixed, width).slice(first, count));
    });
    return projected(layer.attention_out, layer.attention_out.matrix(), mixed);
  }

  /// mlp(norm(x)) with `gate_up` for the layer's own; gated: what the down projection reads.
  Rows mlp(const FloatLayer& layer, const DenseMatrix<Fp32>& gate_up, const Rows& x, Rows& gated) {
    const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / shape_.hidden;
    const Norm norm{.weight = layer.mlp_norm.data(), .epsilon = epsilon_};
    gated.resize(static_cast<std::size_t>(tokens * shape_.ffn));
    in_pieces(tokens, [&](std::int64_t first, std::int64_t count) {
      device_.gated_mlp(rows(x, shape_.hidden).slice(first, count), norm, gate_up, layer.gate_up.bias_or_null(),
                        rows(gated, shape_.ffn).slice(first, count));
    });
    return projected(layer.down, layer.down.matrix(), gated);
  }

  /// input . weight^T + bias, with `weight` for the linear layer's own
  Rows projected(const FloatLinear& linear, const DenseMatrix<Fp32>& weight, const Rows& input) {
    const std::int64_t tokens = static_cast<std::int64_t>(input.size()) / linear.in;
    Rows out(static_cast<std::size_t>(tokens * weight.out));
    in_pieces(tokens, [&](std::int64_t first, std::int64_t count) {
      device_.project(rows(input, linear.in).slice(first, count), weight, linear.bias_or_null(),
                      rows(out, weight.out).slice(first, count));
    });
    return out;
  }

  int threads() const { return device_.threads(); }

 private:
  static ModelConfig one_layer(ModelConfig shape) {
    shape.layers = 1;
    return shape;
  }

  static View<float, 2> rows(Rows& values, std::int64_t width) {
    return {values.data(), static_cast<std::int64_t>(values.size()) / width, width};
  }
  static View<const float, 2> rows(const Rows& values, std::int64_t width) {
    return {values.data(), static_cast<std::int64_t>(values.size()) / width, width};
  }

  template <class F>
  static void in_pieces(std::int64_t tokens, F&& run) {
    for (std::int64_t first = 0; first < tokens; first += backend::Cpu::max_rows) {
      run(first, std::min<std::int64_t>(tokens - first, backend::Cpu::max_rows));
    }
  }

  ModelConfig shape_;
  float epsilon_;
  backend::Cpu device_;
  KvCache<backend::Cpu> kv_;
  std::vector<float> frequencies_;
};

}  // namespace slm::quantize
