// Steps: the operations of a Llama model in its order, on four-bit weights that no file holds.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/int4_random.hpp"
#include "slm/backend/cpu/cpu.hpp"

namespace slm::bench {

using Mixed = backend::Cpu::Mixed;

constexpr int prompt_tokens = 64, context = 640;

struct Shape {
  const char* name;
  int layers, hidden, ffn, heads, head_dim, vocab;
  bool tied;
  bool bf16_head;
};
inline constexpr Shape amd_135m{"amd_135m", 12, 768, 2048, 12, 64, 32000, false, false};
inline constexpr Shape olmo_1b{"olmo_1b", 16, 2048, 8192, 16, 128, 50304, true, false};
inline constexpr Shape codellama_7b{"codellama_7b", 32, 4096, 11008, 32, 128, 32016, false, false};

/// The operations of a model, in a model's order, on weights that no file holds.
class Steps {
 public:
  explicit Steps(const Shape& shape) : shape_(shape), heads_{shape.heads, shape.heads, shape.head_dim} {
    std::uint32_t seed = 1;
    for (int l = 0; l < shape.layers; ++l) {
      const int width = shape.heads * shape.head_dim;
      layers_.push_back({matrix(3 * width, shape.hidden, seed++), matrix(shape.hidden, width, seed++),
                         matrix(2 * shape.ffn, shape.hidden, seed++), matrix(shape.hidden, shape.ffn, seed++)});
      const auto cache = static_cast<std::size_t>(context) * static_cast<std::size_t>(width);
      keys_.push_back(backend::PageBuffer<float>(cache));
      values_.push_back(backend::PageBuffer<float>(cache));
    }
    table_ = dense_table();
    norm_.assign(static_cast<std::size_t>(shape.hidden), 1.0f);
    for (int i = 0; i < shape.head_dim / 2; ++i) {
      frequency_.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(shape.head_dim)));
    }
  }

  /// Tokens at positions from `position` on; logits of the last `wanted`.
  View<const float, 2> run(backend::Cpu& device, int position, std::span<const Token> tokens, int wanted) {
    const int count = static_cast<int>(tokens.size());
    const Norm norm{.weight = norm_.data(), .epsilon = 1e-5f};
    const int width = heads_.query * heads_.dim;
    const auto rows = [count](std::vector<float>& buffer, int row_width) {
      buffer.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(row_width));
      return View<float, 2>{buffer.data(), count, row_width};
    };
    const View<float, 2> x = rows(x_, shape_.hidden), q = rows(q_, width), mixed = rows(mixed_, width),
                         gated = rows(gated_, shape_.ffn);
    device.embed(table_, tokens, x);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const KvLayer<float> kv{View<float, 3>{keys_[l].data(), heads_.kv, context, heads_.dim},
                              View<float, 3>{values_[l].data(), heads_.kv, context, heads_.dim}};
      device.qkv(x, norm, layers_[l].qkv, nullptr, Rope{.inverse_frequency = frequency_.data()}, heads_, position, q,
                 kv);
      device.attend(q, heads_, position, kv, mixed);
      device.project(mixed, layers_[l].out, nullptr, x);
      device.gated_mlp(x, norm, layers_[l].gate_up, nullptr, gated);
      device.project(gated, layers_[l].down, nullptr, x);
    }
    logits_.resize(static_cast<std::size_t>(wanted) * static_cast<std::size_t>(shape_.vocab));
    const View<float, 2> logits{logits_.data(), wanted, shape_.vocab};
    if (wanted > 0) device.logits(x.slice(count - wanted, wanted), norm, table_, logits);
    return logits;
  }

  /// The same of any tokens.
  void run(backend::Cpu& device, int position, int count, int wanted) {
    std::vector<Token> tokens(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = (position + i) * 7919 % shape_.vocab;
    run(device, position, tokens, wanted);
  }

  double int4_bytes() const {
    double bytes = 0;
    for (const Layer& layer : layers_) {
      for (const Mixed* m : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down})
        bytes += static_cast<double>(m->bytes());
    }
    return bytes;
  }
  double weights_in_layers() const {
    double count = 0;
    for (const Layer& layer : layers_) {
      for (const Mixed* m : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down}) {
        count += static_cast<double>(m->out) * static_cast<double>(m->in);
      }
    }
    return count;
  }
  double head_bytes() const { return static_cast<double>(table_.bytes()); }
  /// Of all weights, in four bits (head and embedding F16) and in bf16.
  double memory() const { return int4_bytes() + (shape_.tied ? 1 : 2) * head_bytes(); }
  double bf16_memory() const { return 2 * weights_in_layers() + (shape_.tied ? 1 : 2) * head_bytes(); }

 private:
  struct Layer {
    Mixed qkv, out, gate_up, down;
  };

  Mixed matrix(int out, int in, std::uint32_t seed) const { return Mixed(random_int4(out, in, 128, seed)); }

  Mixed dense_table() {
    const std::size_t count = static_cast<std::size_t>(shape_.vocab) * static_cast<std::size_t>(shape_.hidden);
    elements_ = backend::PageBuffer<std::uint16_t>(count);
    const unsigned varying = shape_.bf16_head ? 0x807f : 0x83ff, exponent = shape_.bf16_head ? 0x3c80 : 0x2400;
    std::uint32_t state = 7;
    for (std::size_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      elements_.data()[i] = static_cast<std::uint16_t>((state >> 16 & varying) | exponent);
    }
    const Tensor tensor{"table",
                        shape_.bf16_head ? DType::bf16 : DType::f16,
                        {shape_.vocab, shape_.hidden},
                        reinterpret_cast<const std::byte*>(elements_.data()),
                        count * sizeof(std::uint16_t)};
    const LinearSource source[] = {tensor};
    return Mixed::dense(source);
  }

  Shape shape_;
  Heads heads_;
  std::vector<Layer> layers_;
  std::vector<backend::PageBuffer<float>> keys_, values_;
  backend::PageBuffer<std::uint16_t> elements_;
  Mixed table_;
  std::vector<float> norm_, frequency_, x_, q_, mixed_, gated_, logits_;
};

}  // namespace slm::bench
