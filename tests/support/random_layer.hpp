// Random weights, activations and a KV cache for tests of backends.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"

namespace slm::testing {

/// Uniform in [-1, 1), the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  float operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state_ >> 40) * 0x1p-23f - 1.0f;
  }
  std::vector<float> vector(std::size_t count, float scale = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = (*this)() * scale;
    return values;
  }

 private:
  std::uint64_t state_;
};

/// Owns the bytes of one tensor [out, in], `skew` bytes behind the beginning of a cache line.
template <class Format>
struct RandomTensor {
  using Element = typename Format::Element;
  std::vector<std::byte> storage;
  Tensor tensor;

  RandomTensor(std::int64_t out, std::int64_t in, std::uint64_t seed, std::size_t skew = 0)
      : storage(static_cast<std::size_t>(out * in) * sizeof(Element) + skew + 64) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    std::byte* const bytes = storage.data() + (64 - address % 64) % 64 + skew;
    Random random(seed);
    for (std::int64_t i = 0; i < out * in; ++i) {
      const Element value = from_float<Element>(random() / std::sqrt(static_cast<float>(in)));
      std::memcpy(bytes + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
    }
    tensor = {"random", Format::dtype, {out, in}, bytes, static_cast<std::size_t>(out * in) * sizeof(Element)};
  }
};

/// One layer of a model: what the six operations need, in a given shape.
template <class Format>
struct RandomLayer {
  Heads heads;
  int hidden, ffn, vocab, context;
  RandomTensor<Format> q, k, v, o, gate, up, down, table;
  std::vector<float> norm, inverse_frequency, qkv_bias, o_bias, mlp_bias, down_bias;

  RandomLayer(Heads h, int hidden_size, int ffn_size, int vocabulary, int context_length, std::uint64_t seed,
              std::size_t skew = 0)
      : heads(h),
        hidden(hidden_size),
        ffn(ffn_size),
        vocab(vocabulary),
        context(context_length),
        q(h.query * h.dim, hidden, seed + 1, skew),
        k(h.kv * h.dim, hidden, seed + 2, skew),
        v(h.kv * h.dim, hidden, seed + 3, skew),
        o(hidden, h.query * h.dim, seed + 4, skew),
        gate(ffn, hidden, seed + 5, skew),
        up(ffn, hidden, seed + 6, skew),
        down(hidden, ffn, seed + 7, skew),
        table(vocab, hidden, seed + 8, skew) {
    Random random(seed);
    norm = random.vector(static_cast<std::size_t>(hidden));
    qkv_bias = random.vector(static_cast<std::size_t>((h.query + 2 * h.kv) * h.dim));
    o_bias = random.vector(static_cast<std::size_t>(hidden));
    mlp_bias = random.vector(static_cast<std::size_t>(2 * ffn));
    down_bias = random.vector(static_cast<std::size_t>(hidden));
    for (int i = 0; i < h.dim / 2; ++i) {
      inverse_frequency.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(h.dim)));
    }
  }
};

/// A KV cache of one layer filled with a value, by default NaN: whoever reads what was never written is found out.
struct TestCache {
  std::vector<float> keys, values;
  Heads heads;
  int context;

  TestCache(Heads h, int context_length, float fill = std::nanf(""))
      : keys(static_cast<std::size_t>(h.kv * context_length * h.dim), fill),
        values(keys),
        heads(h),
        context(context_length) {}
  KvLayer<float> layer() {
    return {View<float, 3>{keys.data(), heads.kv, context, heads.dim},
            View<float, 3>{values.data(), heads.kv, context, heads.dim}};
  }
};

/// What the layer's operations leave behind.
struct LayerResult {
  std::vector<float> q, mixed, x, gated, logits;
};

/// Runs one whole layer on rows x [rows, hidden] at `position`: every operation but embed, on the same cache.
template <class Format, class B>
LayerResult run_layer(B device, RandomLayer<Format>& layer, const std::vector<float>& input, int position,
                      TestCache& cache, bool bias = true) {
  const int rows = static_cast<int>(input.size()) / layer.hidden;
  const Heads heads = layer.heads;
  const auto pack = [&device](std::vector<Tensor> tensors) { return device.template pack<Format>(tensors); };
  const auto qkv = pack({layer.q.tensor, layer.k.tensor, layer.v.tensor});
  const auto o = pack({layer.o.tensor});
  const auto gate_up = pack({layer.gate.tensor, layer.up.tensor});
  const auto down = pack({layer.down.tensor});
  const auto table = pack({layer.table.tensor});
  const Norm norm{.weight = layer.norm.data(), .epsilon = 1e-5f};
  const Rope rope{.inverse_frequency = layer.inverse_frequency.data()};
  const auto size = [rows](int width) { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width); };
  LayerResult result{std::vector<float>(size(heads.query * heads.dim)),
                     std::vector<float>(size(heads.query * heads.dim)), input, std::vector<float>(size(layer.ffn)),
                     std::vector<float>(size(layer.vocab))};
  const auto view = [rows](std::vector<float>& values, int width) {
    return View<float, 2>{values.data(), rows, width};
  };
  const View<float, 2> x = view(result.x, layer.hidden), q = view(result.q, heads.query * heads.dim),
                       mixed = view(result.mixed, heads.query * heads.dim), gated = view(result.gated, layer.ffn);
  device.qkv(x, norm, qkv, bias ? layer.qkv_bias.data() : nullptr, rope, heads, position, q, cache.layer());
  device.attend(q, heads, position, cache.layer(), mixed);
  device.project(mixed, o, bias ? layer.o_bias.data() : nullptr, x);
  device.gated_mlp(x, norm, gate_up, bias ? layer.mlp_bias.data() : nullptr, gated);
  device.project(gated, down, bias ? layer.down_bias.data() : nullptr, x);
  device.logits(x, norm, table, view(result.logits, layer.vocab));
  return result;
}

}  // namespace slm::testing
