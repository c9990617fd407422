// CalibrationPass: propagates a text's activations through the original blocks of a model, one block at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/awq/calibration.hpp"
#include "slm/awq/layer_inputs.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/formats/convert.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Throws quantize.unsupported for models whose blocks have no AWQ mapping.
inline void check_foldable(const Checkpoint& checkpoint) {
  const ModelConfig& shape = checkpoint.config();
  const char* what = shape.mixture.experts != 0                                  ? "has a mixture of experts"
                     : shape.is_hybrid()                                         ? "has recurrent layers"
                     : !shape.is_uniform()                                       ? "has layers of different shapes"
                     : checkpoint.names().weights(Role::down).front().transposed ? "stores its matrices transposed"
                     : shape.order == BlockOrder::post_norm ? "has its norms after attention and MLP"
                     : shape.inner_norms    ? "has norms before the second matrices of attention and MLP"
                     : shape.embedding != 0 ? "projects its embedding"
                                            : nullptr;
  if (what == nullptr) return;
  throw Error("quantize.unsupported",
              text("'", checkpoint.folder().string(), "' ", what, ", for which AWQ has no mapping in slm"),
              "See docs/models.md for the models that can be quantized");
}

class CalibrationPass {
 public:
  /// pool: for the statistics. searched: number of sequences used by searches; all sequences are used for the
  /// statistics.
  CalibrationPass(const Checkpoint& checkpoint, backend::Cpu device, std::shared_ptr<backend::ThreadPool> pool,
                  const std::filesystem::path& text, CalibrationOptions options, int searched)
      : checkpoint_(checkpoint), pool_(std::move(pool)), runner_(checkpoint, std::move(device)) {
    options.sequence_length = std::min(options.sequence_length, checkpoint.settings().context);
    const Sequences sequences = calibration_sequences(text, Tokenizer::from(checkpoint.folder()), options);
    sequence_length_ = sequences.front().size();
    for (const auto& sequence : sequences) hidden_.push_back(embedded(sequence));
    searched_ = std::min(hidden_.size(), static_cast<std::size_t>(std::max(searched, 1)));
  }

  std::size_t samples() const { return hidden_.size(); }
  std::size_t sequence_length() const { return sequence_length_; }
  BlockRunner& runner() { return runner_; }

  /// Runs the next block, `index`, on every sequence with its original weights, so that later blocks get the reference
  /// activations. inputs: collects data for the searches, unless null; must be started.
  void advance(FloatLayer& layer, int index, LayerInputs* inputs) {
    runner_.enter(index);
    const BlockOrder order = checkpoint_.config().order;
    const bool parallel = is_parallel(order), before = norms_inputs(order);
    const auto& mlp_norm = order == BlockOrder::parallel ? layer.weights.attention_norm : layer.weights.mlp_norm;
    const auto add_attention = [&](Rows& x, const Rows& y) { runner_.add(x, layer.weights.attention_output_norm, y); };
    const auto inputs_of = [&](const NormWeights<backend::Cpu>& norm, const Rows& x) {
      return before ? runner_.normalized(norm, x) : x;
    };
    for (std::size_t s = 0; s < hidden_.size(); ++s) {
      Rows& x = hidden_[s];
      SequenceActivations seen{.attention_x = x, .mixed = {}, .attention_y = {}, .mlp_x = {}, .gated = {}, .mlp_y = {}};
      seen.mixed = runner_.mixed(layer, layer.weights.qkv, x);
      seen.attention_y = runner_.attention(layer, seen.mixed);
      if (!parallel) add_attention(x, seen.attention_y);
      seen.mlp_x = x;
      seen.gated = runner_.gated(layer, layer.weights.gate_up, x);
      seen.mlp_y = runner_.mlp(layer, seen.gated);
      if (parallel) add_attention(x, seen.attention_y);
      runner_.add(x, layer.weights.mlp_output_norm, seen.mlp_y);
      if (inputs == nullptr) continue;
      const std::size_t kept = inputs->searched.size();
      const bool search = kept < searched_ && s == kept * hidden_.size() / searched_;
      const auto count = [&](InputStatistics& input, const Rows& rows) { input.add(rows, search, *pool_); };
      count(inputs->qkv, inputs_of(layer.weights.attention_norm, seen.attention_x));
      count(inputs->attention_out, seen.mixed);
      count(inputs->gate_up, inputs_of(mlp_norm, seen.mlp_x));
      count(inputs->down, seen.gated);
      if (!search) continue;
      const ModelConfig& shape = checkpoint_.config();
      seen.mixed = thinned(seen.mixed, std::int64_t{shape.heads} * shape.head_dim);
      seen.gated = thinned(seen.gated, shape.ffn);
      for (Rows* rows : {&seen.attention_y, &seen.mlp_x, &seen.mlp_y}) *rows = thinned(*rows, shape.hidden);
      inputs->searched.push_back(std::move(seen));
    }
  }

 private:
  Rows embedded(std::span<const Token> tokens) const {
    const ModelConfig& shape = checkpoint_.config();
    const ModelSettings& settings = checkpoint_.settings();
    const TensorName name = checkpoint_.names().weights(Role::embedding).front();
    const Tensor& table = checkpoint_.tensor(name.name, name.shape);
    const auto width = static_cast<std::size_t>(shape.hidden);
    Rows x(tokens.size() * width), position(width);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= shape.vocab) {
        throw Error("quantize.token",
                    text("expected token ids of the model from its tokenizer, found ", tokens[i],
                         " outside the vocabulary 0..", shape.vocab - 1),
                    "Check that tokenizer and weights belong together");
      }
      convert(table, std::int64_t{tokens[i]} * shape.hidden, shape.hidden, &x[i * width]);
      for (const TensorName& positions : checkpoint_.names().weights(Role::positions)) {
        const std::int64_t row = static_cast<std::int64_t>(i) + settings.position_offset;
        convert(checkpoint_.tensor(positions.name, positions.shape), row * shape.hidden, shape.hidden, position.data());
        for (std::size_t k = 0; k < width; ++k) x[i * width + k] += position[k];
      }
    }
    for (float& value : x) value *= settings.embedding_scale;
    return x;
  }

  const Checkpoint& checkpoint_;
  std::shared_ptr<backend::ThreadPool> pool_;
  BlockRunner runner_;
  std::size_t searched_ = 0, sequence_length_ = 0;
  std::vector<Rows> hidden_;  // residual stream after the processed blocks   [samples]
};

}}}
