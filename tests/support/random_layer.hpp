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

/// Uniform in [-1, 1), equal on all systems.
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

/// The first `count` numbers of Random(seed).
inline std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  return Random(seed).vector(static_cast<std::size_t>(count));
}

/// Owns the bytes of one tensor [out, in], `skew` bytes after the start of a cache line.
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

/// One layer of a model: the inputs of the six operations, in a given shape.
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

/// Pages of one layer's keys and values for one sequence, filled with a value, by default NaN, which detects reads of
/// unwritten values.
class TestCache {
 public:
  TestCache(Heads heads, int context, float fill = std::nanf(""))
      : heads_(heads),
        pages_(static_cast<std::size_t>((context + page_positions - 1) / page_positions),
               std::vector<float>(2 * half(), fill)) {}

  KvLayer layer() const { return {.kind = 0, .keys = 0, .values = static_cast<std::int64_t>(half() * sizeof(float))}; }

  float& key(int head, int position, int d) { return at(0, head, position, d); }
  float& value(int head, int position, int d) { return at(half(), head, position, d); }

  void randomize(Random& random, float scale = 1) {
    for (auto& page : pages_) page = random.vector(page.size(), scale);
  }

  /// All keys and values.
  std::vector<float> all() const {
    std::vector<float> values;
    for (const auto& page : pages_) values.insert(values.end(), page.begin(), page.end());
    return values;
  }

  std::vector<std::byte*> table() {
    std::vector<std::byte*> pages;
    for (auto& page : pages_) pages.push_back(page.empty() ? nullptr : reinterpret_cast<std::byte*>(page.data()));
    return pages;
  }

  /// Frees a page.
  void release(int page) { pages_[static_cast<std::size_t>(page)].clear(); }

 private:
  std::size_t half() const {
    return static_cast<std::size_t>(heads_.kv) * static_cast<std::size_t>(page_positions * heads_.dim);
  }
  float& at(std::size_t part, int head, int position, int d) {
    return pages_[static_cast<std::size_t>(position / page_positions)]
                 [part +
                  static_cast<std::size_t>((head * page_positions + position % page_positions) * heads_.dim + d)];
  }

  Heads heads_;
  std::vector<std::vector<float>> pages_;  // [2, kv, page_positions, dim] each
};

/// The plan of some rows of one or more sequences.
class TestPlan {
 public:
  TestPlan() = default;
  TestPlan(TestCache& cache, int rows, int position) { add(cache, rows, position); }
  explicit TestPlan(const std::vector<Token>& tokens, int position = 0) {
    add({}, static_cast<int>(tokens.size()), position);
    for (std::size_t r = 0; r < tokens.size(); ++r) rows_[r].token = tokens[r];
  }

  void add(TestCache& cache, int rows, int position) { add(cache.table(), rows, position); }

  void add(const std::vector<std::byte*>& table, int rows, int position, const Adapter* adapter = nullptr) {
    const auto first = static_cast<int>(rows_.size());
    for (int r = 0; r < rows; ++r) {
      rows_.push_back({.position = position + r,
                       .sequence = static_cast<int>(sequences_.size()),
                       .parent = r == 0 ? -1 : first + r - 1});
    }
    sequences_.push_back({.first_row = first,
                          .rows = rows,
                          .first_page = static_cast<int>(pages_.size()),
                          .pages = static_cast<int>(table.size()),
                          .adapter = adapter});
    pages_.insert(pages_.end(), table.begin(), table.end());
  }

  KvFormat format = KvFormat::f32;

  operator StepPlan() const {  // NOLINT: a plan is a plain structure
    return {.rows = rows_, .sequences = sequences_, .pages = pages_, .outputs = {}, .draws = {}, .format = format};
  }

 private:
  std::vector<PlanRow> rows_;
  std::vector<PlanSequence> sequences_;
  std::vector<std::byte*> pages_;
};

/// The results of the layer's operations.
struct LayerResult {
  std::vector<float> q, mixed, x, gated, logits;
};

/// Runs one whole layer on rows x [rows, hidden] at `position`: every operation except embed, on the same cache.
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
  const Rope rope{.inverse_frequency = {layer.inverse_frequency.data()}};
  const auto size = [rows](int width) { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width); };
  LayerResult result{std::vector<float>(size(heads.query * heads.dim)),
                     std::vector<float>(size(heads.query * heads.dim)), input, std::vector<float>(size(layer.ffn)),
                     std::vector<float>(size(layer.vocab))};
  const auto view = [rows](std::vector<float>& values, int width) {
    return View<float, 2>{values.data(), rows, width};
  };
  const View<float, 2> x = view(result.x, layer.hidden), q = view(result.q, heads.query * heads.dim),
                       mixed = view(result.mixed, heads.query * heads.dim), gated = view(result.gated, layer.ffn);
  const auto biased = [bias](const auto& weight, const std::vector<float>& values) {
    return Linear{weight, bias ? values.data() : nullptr};
  };
  const TestPlan plan(cache, rows, position);
  auto step = device.begin(plan);
  step.qkv(x, norm, biased(qkv, layer.qkv_bias), rope, heads, cache.layer(), q, {});
  step.attend(q, heads, cache.layer(), mixed, {});
  step.project(mixed, biased(o, layer.o_bias), x);
  step.gated_mlp(x, norm, biased(gate_up, layer.mlp_bias), gated, ActivationKind::silu);
  step.project(gated, biased(down, layer.down_bias), x);
  step.logits(x, norm, Linear{table}, view(result.logits, layer.vocab));
  return result;
}

}  // namespace slm::testing
