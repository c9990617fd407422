// Shapes of published hybrids and mixtures of experts, which no compile-time config has.
#pragma once

#include "slm/config/model_config.hpp"

namespace slm::bench {

/// A short convolution in place of attention in all layers but six. Tied.
constexpr ModelConfig lfm2_1_2b() {
  ModelConfig shape{.layers = 16,
                    .hidden = 2048,
                    .ffn = 8192,
                    .heads = 32,
                    .kv_heads = 8,
                    .head_dim = 64,
                    .vocab = 65536,
                    .qk_norm = QkNorm::per_head,
                    .mixer = {.kind = MixerKind::short_conv, .taps = 3, .heads = 1, .head_dim = 2048}};
  const LayerSet attention{2, 5, 8, 10, 12, 14};
  for (int layer = 0; layer < shape.layers; ++layer) {
    if (!attention.has(layer)) shape.mixer_layers.add(layer);
  }
  shape.no_attention = shape.mixer_layers;
  return shape;
}

/// Gated delta nets, and gated attention in every fourth layer. Tied.
constexpr ModelConfig qwen3_5(int layers, int hidden, int ffn, int heads, int kv_heads, int value_heads) {
  ModelConfig shape{
      .layers = layers,
      .hidden = hidden,
      .ffn = ffn,
      .heads = heads,
      .kv_heads = kv_heads,
      .head_dim = 256,
      .vocab = 248320,
      .rotary = 64,
      .qk_norm = QkNorm::per_head,
      .mixer =
          {.kind = MixerKind::delta_net, .taps = 4, .heads = value_heads, .head_dim = 128, .groups = 16, .state = 128},
      .attention_gate = true};
  for (int layer = 0; layer < layers; ++layer) {
    if (layer % 4 != 3) shape.mixer_layers.add(layer);
  }
  shape.no_attention = shape.mixer_layers;
  return shape;
}

inline constexpr ModelConfig qwen3_5_0_8b = qwen3_5(24, 1024, 3584, 8, 2, 16);
/// Its numbers of attention heads are assumed: no published config was at hand.
inline constexpr ModelConfig qwen3_5_4b = qwen3_5(32, 2560, 9216, 16, 4, 32);

/// Eight of 64 experts for each token.
inline constexpr ModelConfig olmoe_1b_7b{.layers = 16,
                                         .hidden = 2048,
                                         .ffn = 1024,
                                         .heads = 16,
                                         .kv_heads = 16,
                                         .head_dim = 128,
                                         .vocab = 50304,
                                         .qk_norm = QkNorm::whole,
                                         .mixture = {.experts = 64, .chosen = 8, .ffn = 1024}};

}  // namespace slm::bench
