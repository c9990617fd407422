// The buffers of a step and the settings of a block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 {

/// Buffers of one step. Each row is one token of the step.
template <Backend B>
struct Activations {
  using Rows = View<typename B::Activation, 2>;
  Rows x;               // [rows, hidden]      residual stream
  Rows q;               // [rows, heads * dim] queries
  Rows mixed;           // [rows, heads * dim] attention output
  Rows gated;           // [rows, ffn]
  Rows branch = {};     // [rows, hidden]  an output that is normalised before it is added; empty in other orders
  Rows projected = {};  // [rows, projected] inputs of a recurrence, in the memory of q; empty without mixers
  Rows inner = {};      // [rows, inner]     outputs of a recurrence
  Rows inputs = {};     // [rows, layers * width] the layers' own inputs; empty without them
  Rows streams = {};    // [streams * rows, hidden] see MixesStreams; empty with one residual stream
  Rows normed = {};     // [rows, hidden]    norm(x) of a layer with streams, in the memory of gated
  Rows gate_up = {};    // [rows, 2 * ffn]   of an MLP that drops gates, in the memory of mixed; empty without them
};

/// Widths of buffers that several parts of a model use, one after another.
struct BufferWidths {
  std::int64_t queries, mixed, gated;
};

inline BufferWidths buffer_widths(const ModelConfig& shape, const ModelSettings& settings) {
  const std::int64_t width = shape.most_queries(), ffn = shape.most_ffn(), count = shape.streams.count;
  const std::int64_t latent = shape.is_latent() ? shape.head_dim : 0;  // a cached row beside the queries
  const std::int64_t projected = shape.mixer.kind != MixerKind::none ? shape.mixer.projected() : 0;
  const std::int64_t inputs = shape.shapes.inputs, rank = shape.streams.low_rank;
  return {.queries = std::max({width + latent, projected, rank, count}),
          .mixed = std::max({width, settings.drops_gates() ? 2 * ffn : 0, count * count}),
          .gated = std::max({ffn, inputs, std::int64_t{shape.latent.query_rank},
                             std::int64_t{shape.has_streams() ? shape.hidden : 0}})};
}

/// The buffers in the widths of a layer.
template <Backend B>
Activations<B> of_layer(const ModelConfig& shape, int layer, Activations<B> rows) {
  if (shape.is_uniform()) return rows;
  const auto narrow = [](auto& view, std::int64_t width) { view = {view.data, view.extent(0), width}; };
  const std::int64_t width = shape.shapes.inputs;
  narrow(rows.q, std::int64_t{shape.heads} * shape.head_dim_of(layer));
  narrow(rows.mixed, rows.q.extent(1));
  narrow(rows.gated, shape.ffn_of(layer));
  if (rows.gate_up.data != nullptr) narrow(rows.gate_up, std::int64_t{2} * shape.ffn_of(layer));
  if (width != 0) {
    rows.inputs.data += width * layer;
    rows.inputs.extents[1] = width;
  }
  return rows;
}

/// Settings of a checkpoint that a block needs besides its weights.
struct BlockSettings {
  float norm_epsilon = 0;
  float clip_qkv = 0;  // 0: none
  bool clips_normed = false;
  float residual_scale = 1;
  LayerFactors factors = {};
  RouterSettings router = {};  // of a layer with experts
  float gate_cutoff = -std::numeric_limits<float>::infinity();
  Rope rope = {};
  Attention attention = {};
};

/// Tables that layers of a model share, in device memory; null: none.
struct PositionTables {
  const float* inverse_frequency[2] = {};  // see Rope
  const float* windowed_frequency = nullptr;
  const float* slopes = nullptr;
};

inline BlockSettings block_settings(const ModelConfig& shape, const ModelSettings& settings, int layer,
                                    const PositionTables& tables) {
  Rope rope;
  if (settings.rotates(layer)) {
    const bool windowed = settings.has_two_ropes() && settings.window_of(layer) != 0;
    const float* const own = windowed ? tables.windowed_frequency : nullptr;
    rope = {.inverse_frequency = {windowed ? own : tables.inverse_frequency[0],
                                  windowed ? own : tables.inverse_frequency[1]},
            .width = shape.rotary_dim_of(layer),
            .factor = windowed ? 1 : settings.rope_scaling.attention_factor,
            .pairs = shape.rotates_pairs};
  }
  return {.norm_epsilon = settings.norm_epsilon,
          .clip_qkv = settings.clip_qkv,
          .clips_normed = settings.clips_normed,
          .residual_scale = settings.residual_scale,
          .factors = settings.factors,
          .router = settings.router,
          .gate_cutoff = settings.gate_cutoff(layer),
          .rope = rope,
          .attention = {.scale = settings.attention_scale,
                        .window = settings.window_of(layer),
                        .slopes = tables.slopes,
                        .cap = settings.attention_cap,
                        .temperature = settings.temperature,
                        .temperature_context = settings.temperature_context}};
}

}}
