// TensorNames: the tensors of one checkpoint by their roles, with the shapes that config.json implies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/checkpoint.hpp"

namespace slm {

struct TensorName {
  std::string name;
  std::vector<std::int64_t> shape;  // as stored
  bool transposed = false;          // a matrix stored [in, out]

  /// Name without its last part: "model.layers.0.mlp.up_proj.weight" -> "model.layers.0.mlp.up_proj".
  std::string module() const { return name.substr(0, name.rfind('.')); }
};

/// A family's table filled in. What the architecture has not is asked for by nobody.
class TensorNames {
 public:
  explicit TensorNames(const ModelConfig& config, const Family& family = families::llama, std::string_view prefix = {})
      : shape_(config), table_(family.names), prefix_(prefix) {}

  explicit TensorNames(const Checkpoint& checkpoint)
      : TensorNames(checkpoint.config(), checkpoint.family(), prefix_of(checkpoint, checkpoint.family())) {}

  TensorName embedding() const { return {weight(table_.embedding), {shape_.vocab, shape_.embedding_dim()}}; }
  TensorName head() const { return {text(table_.head, ".weight"), {shape_.vocab, shape_.embedding_dim()}}; }
  TensorName final_norm() const { return {weight(table_.final_norm), {shape_.hidden}}; }
  TensorName project_in() const { return {weight(table_.project_in), {shape_.hidden, shape_.embedding}}; }
  TensorName project_out() const { return {weight(table_.project_out), {shape_.embedding, shape_.hidden}}; }
  TensorName positions(const ModelSettings& settings) const {
    return {weight(table_.positions), {settings.context + settings.position_offset, shape_.hidden}};
  }

  TensorName attention_norm(int layer) const { return {in(layer, table_.attention_norm), {shape_.hidden}}; }
  TensorName mlp_norm(int layer) const { return {in(layer, table_.mlp_norm), {shape_.hidden}}; }
  TensorName q_norm(int layer) const { return {in(layer, table_.q_norm), {qk_norm_width(shape_.heads)}}; }
  TensorName k_norm(int layer) const { return {in(layer, table_.k_norm), {qk_norm_width(shape_.kv_heads)}}; }

  std::vector<TensorName> qkv(int layer) const {
    const auto& names = table_.qkv;
    if (names[1].empty()) return {matrix(layer, names[0], q_width() + 2 * kv_width(), shape_.hidden)};
    return {matrix(layer, names[0], q_width(), shape_.hidden), matrix(layer, names[1], kv_width(), shape_.hidden),
            matrix(layer, names[2], kv_width(), shape_.hidden)};
  }
  std::vector<TensorName> attention_out(int layer) const {
    return {matrix(layer, table_.attention_out, shape_.hidden, q_width())};
  }
  /// Gate and up, or up alone where the MLP has no gate.
  std::vector<TensorName> gate_up(int layer) const {
    const auto& names = table_.up;
    if (names[1].empty()) return {matrix(layer, names[0], (shape_.gated ? 2 : 1) * shape_.ffn, shape_.hidden)};
    return {matrix(layer, names[0], shape_.ffn, shape_.hidden), matrix(layer, names[1], shape_.ffn, shape_.hidden)};
  }
  std::vector<TensorName> down(int layer) const { return {matrix(layer, table_.down, shape_.hidden, shape_.ffn)}; }

  /// Divisors of the input of `down`; many checkpoints of the family have none. The name is empty where none has.
  TensorName activation_scales(int layer) const {
    if (table_.activation_scales.empty()) return {};
    return {text(numbered(layer), table_.activation_scales), {shape_.ffn}};
  }

  /// The bias beside a weight: "...weight" -> "...bias", one element per output.
  static TensorName bias_of(const TensorName& weight) {
    return {weight.name.substr(0, weight.name.size() - 6) + "bias",
            {weight.transposed ? weight.shape.back() : weight.shape.front()}};
  }

  /// Every tensor that the model needs.
  std::vector<TensorName> all(const ModelSettings& settings) const {
    std::vector<TensorName> names{embedding()};
    const auto add = [&](const std::vector<TensorName>& weights, bool biased) {
      for (const TensorName& weight : weights) {
        names.push_back(weight);
        if (biased) names.push_back(bias_of(weight));
      }
    };
    const auto add_norm = [&](const TensorName& norm) {
      if (shape_.norm_affine != NormAffine::none) add({norm}, shape_.norm_affine == NormAffine::weight_and_bias);
    };
    if (shape_.positions == Positions::learned) add({positions(settings)}, false);
    if (shape_.embedding != 0) add({project_in(), project_out()}, false);
    for (int l = 0; l < shape_.layers; ++l) {
      add_norm(attention_norm(l));
      if (shape_.order != BlockOrder::parallel) add_norm(mlp_norm(l));
      if (shape_.qk_norm != QkNorm::none) add_norm(q_norm(l)), add_norm(k_norm(l));
      add(qkv(l), shape_.attention_bias != AttentionBias::none);
      add(attention_out(l), shape_.attention_bias == AttentionBias::all);
      add(gate_up(l), shape_.mlp_bias);
      add(down(l), shape_.mlp_bias);
    }
    if (shape_.final_norm) add_norm(final_norm());
    if (!settings.tied_embeddings) names.push_back(head());
    if (shape_.head_bias) names.push_back(bias_of(head()));
    return names;
  }

 private:
  static std::string_view prefix_of(const Checkpoint& checkpoint, const Family& family) {
    const TensorTable& names = family.names;
    return checkpoint.has(text(names.optional_prefix, names.embedding, ".weight")) ? names.optional_prefix
                                                                                   : std::string_view{};
  }

  std::int64_t q_width() const { return std::int64_t{shape_.heads} * shape_.head_dim; }
  std::int64_t kv_width() const { return std::int64_t{shape_.kv_heads} * shape_.head_dim; }
  std::int64_t qk_norm_width(int heads) const {
    return std::int64_t{shape_.qk_norm == QkNorm::whole ? heads : 1} * shape_.head_dim;
  }

  std::string weight(std::string_view module) const { return text(prefix_, module, ".weight"); }

  std::string numbered(int layer) const {
    const std::size_t place = table_.layer.find("{}");
    return text(prefix_, table_.layer.substr(0, place), layer, table_.layer.substr(place + 2));
  }

  std::string in(int layer, std::string_view module) const { return text(numbered(layer), module, ".weight"); }

  TensorName matrix(int layer, std::string_view module, std::int64_t out, std::int64_t inputs) const {
    if (table_.transposed) return {in(layer, module), {inputs, out}, true};
    return {in(layer, module), {out, inputs}};
  }

  ModelConfig shape_;
  TensorTable table_;
  std::string prefix_;
};

}  // namespace slm
