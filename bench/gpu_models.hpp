// Models of published shapes with random weights, for benchmarks: written as checkpoints, so that loading and running
// them is what it is for a real one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "slm/config/known_models.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/json.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

namespace slm::bench {

struct Subject {
  std::string name;
  ModelConfig shape;
  bool int4 = false;

  std::string format() const { return int4 ? "int4" : "bf16"; }

  /// Multiplications of the layers' matrices for one token; attention and head not counted.
  double layer_products() const {
    const double q = double(shape.heads) * shape.head_dim, kv = double(shape.kv_heads) * shape.head_dim;
    return double(shape.layers) * shape.hidden * (2 * q + 2 * kv + 3.0 * shape.ffn);
  }

  /// Bytes of the weights, about.
  double bytes() const { return layer_products() * (int4 ? 0.52 : 2.0) + 4.0 * shape.vocab * shape.hidden; }
};

/// A Llama checkpoint in a temporary folder; TMPDIR=/dev/shm keeps it in memory. All tensors of one kind hold the same
/// random bytes.
class RandomModel {
 public:
  explicit RandomModel(const Subject& subject, int context) : subject_(subject) {
    const ModelConfig& shape = subject.shape;
    const std::int64_t q = std::int64_t{shape.heads} * shape.head_dim,
                       kv = std::int64_t{shape.kv_heads} * shape.head_dim;
    std::mt19937_64 random(1);
    const auto largest = static_cast<std::size_t>(std::max<std::int64_t>(shape.vocab, shape.ffn)) *
                         static_cast<std::size_t>(shape.hidden);
    weights_.resize(largest);
    const float scale = std::sqrt(12.0f / static_cast<float>(shape.hidden));
    for (std::size_t i = 0; i < largest; i += 4) {
      const std::uint64_t bits = random();
      for (std::size_t j = i; j < std::min(i + 4, largest); ++j) {
        const auto part = static_cast<float>(bits >> (16 * (j - i)) & 0xffff);
        weights_[j] = from_float<bfloat16_t>((part / 65536 - 0.5f) * scale);
      }
    }
    ones_.assign(static_cast<std::size_t>(shape.hidden), from_float<bfloat16_t>(1.0f));
    if (subject.int4) {
      codes_.resize(static_cast<std::size_t>(std::max<std::int64_t>(shape.ffn, q)) *
                    static_cast<std::size_t>(shape.hidden) / 8);
      for (auto& word : codes_) word = static_cast<std::uint32_t>(random());
      zeros_.assign(codes_.size() / group, 0x88888888u);
      scales_.assign(codes_.size() * 8 / group, from_float<half_t>(scale / 16));
    }
    dense("model.embed_tokens.weight", shape.vocab, shape.hidden);
    dense("lm_head.weight", shape.vocab, shape.hidden);
    norm("model.norm.weight");
    for (int l = 0; l < shape.layers; ++l) {
      const std::string layer = text("model.layers.", l, ".");
      norm(layer + "input_layernorm.weight");
      norm(layer + "post_attention_layernorm.weight");
      linear(layer + "self_attn.q_proj", q, shape.hidden);
      linear(layer + "self_attn.k_proj", kv, shape.hidden);
      linear(layer + "self_attn.v_proj", kv, shape.hidden);
      linear(layer + "self_attn.o_proj", shape.hidden, q);
      linear(layer + "mlp.gate_proj", shape.ffn, shape.hidden);
      linear(layer + "mlp.up_proj", shape.ffn, shape.hidden);
      linear(layer + "mlp.down_proj", shape.hidden, shape.ffn);
    }
    write_safetensors(folder_.path() / "model.safetensors", tensors_);
    std::ofstream(folder_.path() / "config.json") << config(context).dump(1);
    weights_ = {};
    codes_ = {};
  }

  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  static constexpr std::size_t group = 128;

  template <class T>
  void add(const std::string& name, DType type, std::vector<std::int64_t> shape, const std::vector<T>& data) {
    std::size_t size = bytes_of(type);
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    tensors_.push_back({name, type, std::move(shape), reinterpret_cast<const std::byte*>(data.data()), size});
  }
  void dense(const std::string& name, std::int64_t out, std::int64_t in) {
    add(name, DType::bf16, {out, in}, weights_);
  }
  void norm(const std::string& name) { add(name, DType::bf16, {subject_.shape.hidden}, ones_); }
  void linear(const std::string& name, std::int64_t out, std::int64_t in) {
    if (!subject_.int4) return dense(name + ".weight", out, in);
    const auto groups = in / static_cast<std::int64_t>(group);
    add(name + ".qweight", DType::i32, {in, out / 8}, codes_);
    add(name + ".qzeros", DType::i32, {groups, out / 8}, zeros_);
    add(name + ".scales", DType::f16, {groups, out}, scales_);
  }

  Json config(int context) const {
    Json fields = testing::config_json(subject_.shape, false, context);
    if (subject_.int4) {
      fields["quantization_config"] = {
          {"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}};
    }
    return fields;
  }

  Subject subject_;
  testing::TemporaryFolder folder_;
  std::vector<bfloat16_t> weights_, ones_;
  std::vector<std::uint32_t> codes_, zeros_;
  std::vector<half_t> scales_;
  std::vector<Tensor> tensors_;
};

}  // namespace slm::bench
