// KvCache: keys and values of every layer, one contiguous run of positions per head.
#pragma once

#include <cstddef>
#include <cstdint>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"

namespace slm {

template <Backend B>
class KvCache {
 public:
  using Element = typename B::KvElement;

  KvCache(const ModelConfig& shape, int context, B& device)
      : kv_heads_(shape.kv_heads),
        head_dim_(shape.head_dim),
        context_(context),
        keys_(device.template allocate<Element>(shape.layers * layer_size())),
        values_(device.template allocate<Element>(shape.layers * layer_size())) {}

  KvLayer<Element> layer(int index) {
    const std::size_t offset = static_cast<std::size_t>(index) * layer_size();
    return {.keys = {keys_.data() + offset, kv_heads_, context_, head_dim_},
            .values = {values_.data() + offset, kv_heads_, context_, head_dim_}};
  }

  int context() const { return context_; }

 private:
  std::size_t layer_size() const {
    return static_cast<std::size_t>(kv_heads_) * static_cast<std::size_t>(context_) *
           static_cast<std::size_t>(head_dim_);
  }

  int kv_heads_;
  int head_dim_;
  int context_;
  typename B::template Buffer<Element> keys_;    // [layers, kv_heads, context, head_dim]
  typename B::template Buffer<Element> values_;  // [layers, kv_heads, context, head_dim]
};

}  // namespace slm
