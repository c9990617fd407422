// KvCache: keys and values of every layer, one contiguous run of positions per head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"
#include "slm/core/dim.hpp"

namespace slm {

/// A layer with a sliding window keeps a ring of the window, of the rows of one step and of what a decoder may take
/// back; any other layer keeps the context.
template <Backend B>
class KvCache {
 public:
  using Element = typename B::KvElement;

  /// The longest draft length of a decoder and the token behind it: so much can be taken back without loss.
  static constexpr int longest_rollback = 257;

  KvCache(const ModelConfig& shape, const ModelSettings& settings, int context, B& device)
      : kv_heads_(shape.kv_heads), head_dim_(shape.head_dim), context_(context), ring_(context) {
    std::size_t positions = 0;
    for (int l = 0; l < shape.layers; ++l) {
      const int capacity = capacity_of(settings, l, context);
      ring_ = std::min(ring_, capacity);
      layers_.push_back({positions, capacity});
      positions += static_cast<std::size_t>(capacity);
    }
    keys_ = device.template allocate<Element>(positions * row_size());
    values_ = device.template allocate<Element>(positions * row_size());
  }

  /// What a cache of these takes.
  static std::size_t bytes(const ModelConfig& shape, const ModelSettings& settings, int context) {
    std::size_t positions = 0;
    for (int l = 0; l < shape.layers; ++l) positions += static_cast<std::size_t>(capacity_of(settings, l, context));
    return 2 * sizeof(Element) * positions * static_cast<std::size_t>(shape.kv_heads) *
           static_cast<std::size_t>(shape.head_dim);
  }

  KvLayer<Element> layer(int index) {
    const auto [first, capacity] = layers_[static_cast<std::size_t>(index)];
    return {.keys = {keys_.data() + first * row_size(), kv_heads_, capacity, head_dim_},
            .values = {values_.data() + first * row_size(), kv_heads_, capacity, head_dim_}};
  }

  int context() const { return context_; }

  /// Positions of the shortest layer; older ones are lost.
  int ring() const { return ring_; }

 private:
  struct Layer {
    std::size_t first;  // positions of the layers before it
    int capacity;
  };

  static int capacity_of(const ModelSettings& settings, int layer, int context) {
    const int window = settings.window_of(layer);
    const int room = std::max(int{B::max_rows}, longest_rollback);
    const bool ring = window != 0 && window < context - room - ring_block;
    return ring ? ceil_div(window + room, ring_block) * ring_block : context;
  }

  std::size_t row_size() const { return static_cast<std::size_t>(kv_heads_) * static_cast<std::size_t>(head_dim_); }

  int kv_heads_;
  int head_dim_;
  int context_;
  int ring_;
  std::vector<Layer> layers_;
  typename B::template Buffer<Element> keys_;    // per layer [kv_heads, capacity, head_dim]
  typename B::template Buffer<Element> values_;  // per layer [kv_heads, capacity, head_dim]
};

}  // namespace slm
