// The weights of a model, in the backend's layout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"
#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/alibi.hpp"
#include "slm/model/head_rows.hpp"
#include "slm/model/layer_weights.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/rope.hpp"
#include "slm/model/weight_reader.hpp"

namespace slm { inline namespace v0_1 {

template <WeightFormat Format, Backend B>
struct ModelWeights {
  using Layer = LayerWeights<Format, B>;
  using Matrix = typename Layer::Matrix;
  using Vector = typename Layer::Vector;

  /// For an embedding table that is narrower than the model.
  struct Projection {
    Matrix positions;  // [context + offset, hidden]
    Matrix in;         // [hidden, embedding]
    Matrix out;        // [embedding, hidden]
  };

  /// Of the layers' own inputs.
  struct LayerInputs {
    Matrix table;           // [ModelConfig::input_rows(), layers * width]
    Matrix from_embedding;  // [layers * width, hidden]
    Vector norm;            // [width]
  };

  std::shared_ptr<const Checkpoint> checkpoint;  // matrices may refer to its mapped bytes
  Matrix embedding;                              // [vocab, hidden] or [vocab, embedding]
  std::optional<Projection> projection;
  std::optional<LayerInputs> inputs;
  std::vector<Matrix> streams_in, streams_out;  // [hidden, hidden] of each residual stream but the first
  Vector positions;                             // [context + offset, hidden], or empty
  NormWeights<B> final_norm;                    // [hidden]
  Vector head_bias;                             // [vocab] or empty
  Vector inverse_frequency[2];                  // [rotary_dim / 2]; the second: LongRoPE's long factors, or empty
  Vector windowed_frequency;                    // of layers with the window, if theirs differ; else empty
  Vector alibi;                                 // [heads] or empty
  std::vector<Layer> layers;
  std::int64_t step_bytes = 0;                // weight bytes read by one decode step
  int head_tokens = 0;                        // rows of head(); 0: vocab
  std::optional<detail::HeadRows> head_rows;  // the others, unless the head has a bias or is projected
  bool in_file = false;                       // true if steps read the checkpoint's mapped bytes

  /// [vocab, hidden] or [head_tokens, hidden]; requires a model with a head.
  const Matrix& head() const { return untied_head ? *untied_head : embedding; }

  ModelWeights(std::shared_ptr<const Checkpoint> source, B& device, const LoadOptions& options)
      : checkpoint(std::move(source)) {
    const ModelConfig& shape = checkpoint->config();
    const ModelSettings& settings = checkpoint->settings();
    check_bits(options.bits);
    WeightReader<Format, B> reader{*checkpoint, device, weight_type<Format>(options.weights), options.bits};
    read_positions(reader);
    embedding = reader.pack(Role::embedding);
    if (options.head_tokens != 0 && options.head_tokens != shape.vocab) {
      head_tokens = options.head_tokens;
      untied_head = reader.pack_head(head_tokens);
    } else if (!settings.tied_embeddings && !settings.headless) {
      untied_head = reader.pack(Role::head);
    }
    head_bias = reader.vector(reader.names.biases(Role::head));
    if (reader.whole_head && shape.embedding == 0 && reader.names.biases(Role::head).empty()) {
      head_rows.emplace(std::move(*reader.whole_head), head_tokens, settings.logit_cap);
    }
    if (shape.shapes.inputs != 0) {
      inputs = LayerInputs{.table = reader.pack(Role::input_table),
                           .from_embedding = reader.pack_step(Role::input_from_embedding),
                           .norm = reader.vector(reader.names.weights(Role::input_norm), 1 / std::sqrt(2.0f))};
      reader.step_bytes += inputs->table.bytes() / shape.input_rows();
    }
    streams_in = detail::read_stream_matrices<Matrix>(reader, Role::stream_in);
    streams_out = detail::read_stream_matrices<Matrix>(reader, Role::stream_out);
    // Scaling the final norm scales the logits if the head has no bias.
    final_norm = reader.norm(Role::final_norm, 0, settings.logit_scale);
    for (int l = 0; l < shape.layers; ++l) {
      layers.push_back(reader.layer(l));
      if (options.progress) options.progress((l + 1.0) / shape.layers);
    }
    in_file = reader.in_file;
    checkpoint->check_unchanged();
    step_bytes = embedding.bytes() / shape.vocab + head().bytes() + reader.step_bytes;  // one row of the embedding
  }

 private:
  void check_bits(int bits) const {
    if (bits == 0 || (!DenseFormat<Format> && (bits == 4 || bits == 8))) return;
    throw Error("model.bits",
                text("'", checkpoint->folder().string(), "': expected weights of ",
                     DenseFormat<Format> ? "0" : "0, 4 or 8", " bits, found ", bits),
                "Set LoadOptions::bits to 4 or 8 for models of slm::load, or to 0 for the weights as stored");
  }

  void read_positions(WeightReader<Format, B>& reader) {
    const ModelConfig& shape = checkpoint->config();
    const ModelSettings& settings = checkpoint->settings();
    B& device = reader.device;
    if (shape.positions == Positions::rope) {
      for (const bool beyond : {false, true}) {
        if (beyond && settings.rope_scaling.kind != RopeScaling::Kind::longrope) break;
        const auto frequencies = inverse_frequencies(unwindowed_rotary_dim(shape, settings), settings, beyond);
        inverse_frequency[beyond] = device.upload(frequencies.data(), frequencies.size());
      }
      if (settings.has_two_ropes()) {
        const auto frequencies = windowed_frequencies(shape.rotary_dim(), settings);  // no wide heads have the window
        windowed_frequency = device.upload(frequencies.data(), frequencies.size());
      }
    }
    if (shape.positions == Positions::alibi) {
      const auto slopes = alibi_slopes(shape.heads, settings);
      alibi = device.upload(slopes.data(), slopes.size());
    }
    if (shape.embedding != 0) {
      projection = Projection{.positions = {}, .in = reader.pack_step(Role::project_in), .out = {}};
      projection->out = reader.pack_step(Role::project_out);
      if (shape.positions == Positions::learned) projection->positions = reader.pack(Role::positions);
    } else {
      positions = reader.vector(reader.names.weights(Role::positions));
    }
  }

  std::optional<Matrix> untied_head;
};

}}
