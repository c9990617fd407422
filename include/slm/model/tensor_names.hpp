// The one table of checkpoint names: role -> name and shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"

namespace slm {

struct TensorName {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// The tensors of a Llama-family checkpoint, as Hugging Face transformers names them.
struct TensorNames {
  explicit TensorNames(const ModelConfig& shape)
      : hidden(shape.hidden),
        ffn(shape.ffn),
        vocab(shape.vocab),
        q_width(std::int64_t{shape.heads} * shape.head_dim),
        kv_width(std::int64_t{shape.kv_heads} * shape.head_dim) {}

  TensorName embedding() const { return {"model.embed_tokens.weight", {vocab, hidden}}; }
  TensorName head() const { return {"lm_head.weight", {vocab, hidden}}; }
  TensorName final_norm() const { return {"model.norm.weight", {hidden}}; }

  TensorName attention_norm(int layer) const { return {in(layer, "input_layernorm.weight"), {hidden}}; }
  TensorName mlp_norm(int layer) const { return {in(layer, "post_attention_layernorm.weight"), {hidden}}; }

  std::vector<TensorName> qkv(int layer) const {
    return {{in(layer, "self_attn.q_proj.weight"), {q_width, hidden}},
            {in(layer, "self_attn.k_proj.weight"), {kv_width, hidden}},
            {in(layer, "self_attn.v_proj.weight"), {kv_width, hidden}}};
  }
  std::vector<TensorName> attention_out(int layer) const {
    return {{in(layer, "self_attn.o_proj.weight"), {hidden, q_width}}};
  }
  std::vector<TensorName> gate_up(int layer) const {
    return {{in(layer, "mlp.gate_proj.weight"), {ffn, hidden}}, {in(layer, "mlp.up_proj.weight"), {ffn, hidden}}};
  }
  std::vector<TensorName> down(int layer) const { return {{in(layer, "mlp.down_proj.weight"), {hidden, ffn}}}; }

  /// The bias beside a weight: "...weight" -> "...bias", one element per output.
  static TensorName bias_of(const TensorName& weight) {
    return {weight.name.substr(0, weight.name.size() - 6) + "bias", {weight.shape.front()}};
  }

 private:
  static std::string in(int layer, const char* part) { return text("model.layers.", layer, ".", part); }

  std::int64_t hidden;
  std::int64_t ffn;
  std::int64_t vocab;
  std::int64_t q_width;
  std::int64_t kv_width;
};

}  // namespace slm
