// Memory of a device: checks that a model fits before loading it, and allocates host memory for adapters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/config/sizes.hpp"
#include "slm/core/byte_size.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/block_tiles.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/path_name.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/lm/adapter.hpp"
#include "slm/model/block_inputs.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/page_pool.hpp"

namespace slm { inline namespace v0_1 {

/// A backend with device memory, separate from the process's.
template <class B>
concept HasDeviceMemory = requires(const B& device) {
  { device.runtime().memory_free() } -> std::convertible_to<std::size_t>;
  { device.info().memory_bytes } -> std::convertible_to<std::size_t>;
};

/// Host memory for adapters. If a device copies from it, the device allocates it (pinned). The backend must outlive the
/// result.
template <class B>
HostMemory host_memory_of(B& backend) {
  if constexpr (B::own_memory) return [&](std::size_t bytes) { return backend.host_memory(bytes); };
  return std::make_unique_for_overwrite<std::byte[]>;
}

/// Bytes of the block-format matrices on the device: as tiles, or as fp32 if a matrix's parts cannot share tiles.
inline std::size_t device_block_bytes(const Checkpoint& source) {
  std::size_t bytes = 0;
  source.names().for_each([&](Role, int, const auto& weights, const auto&) {
    std::vector<LinearSource> blocked;
    std::int64_t elements = 0;
    for (const TensorName& weight : weights) {
      const Tensor* const tensor = source.find(weight.name);
      if (tensor == nullptr || !is_blocked(tensor->dtype)) continue;
      blocked.push_back(*tensor);
      elements += tensor->elements();
    }
    if (blocked.empty()) return;
    const bool tiles = blocked.size() == weights.size() && block_tiles_hold(blocked);
    bytes += tiles ? static_cast<std::size_t>(block_tiles_of(blocked).total_bytes())
                   : static_cast<std::size_t>(elements) * sizeof(float);
  });
  return bytes;
}

/// Approximate bytes of the weights on the device, as elements of `type` or as stored.
inline std::size_t device_weight_bytes(const Checkpoint& source, WeightType type) {
  const bool as_stored = type == WeightType::as_stored;
  std::size_t bytes = as_stored ? device_block_bytes(source) : 0;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!as_stored) {
      bytes +=
          static_cast<std::size_t>(tensor->elements()) * (type == WeightType::f32 ? sizeof(float) : sizeof(half_t));
    } else if (!is_blocked(tensor->dtype)) {  // FP8 is dequantized to fp32
      bytes += tensor->size_bytes * (tensor->dtype == DType::f8_e4m3 ? sizeof(float) : 1);
    }
  }
  return bytes;
}

/// Width of the widest activations except logits: q, k and v, or gate and up, or the residual streams, or the inputs of
/// all layers.
inline std::int64_t widest_activations(const ModelConfig& shape, const ModelSettings& settings) {
  const BufferWidths widths = buffer_widths(shape, settings);
  std::int64_t widest = std::max({widths.queries, widths.mixed, widths.gated, std::int64_t{2} * shape.most_ffn(),
                                  std::int64_t{shape.hidden} * std::max(1, shape.streams.count),
                                  std::int64_t{shape.shapes.inputs} * shape.layers});
  for (int l = 0; l < shape.layers; ++l)
    widest = std::max(widest, std::int64_t{shape.heads + 2 * shape.kv_heads_of(l)} * shape.head_dim_of(l));
  return widest;
}

/// The model's query heads, and the KV heads and dimensions of the widest layer.
inline Heads widest_heads(const ModelConfig& shape) {
  return {.query = shape.heads,
          .kv = std::max(shape.kv_heads, shape.shapes.kv_heads),
          .dim = std::max(shape.head_dim, shape.shapes.head_dim)};
}

inline MixtureWidths mixture_widths(const ModelConfig& shape) {
  const MixtureConfig& mixture = shape.mixture;
  return {.experts = mixture.experts,
          .chosen = mixture.chosen,
          .shared = mixture.shared_ffn != 0,
          .hidden = shape.hidden,
          .inner = (shape.gated ? 2 : 1) * std::max(mixture.ffn, mixture.shared_ffn)};
}

/// Throws gpu.out-of-memory unless weights and KV cache fit into the free device memory. The message states a context
/// or format that fits.
template <HasDeviceMemory B>
void check_device_memory(const Checkpoint& source, WeightType type, const KvLayout& layout, int context,
                         const B& device) {
  const std::size_t weights = device_weight_bytes(source, type);
  const std::size_t cache = layout.bytes_of(context);
  const std::size_t free = device.runtime().memory_free();
  const ModelConfig& shape = source.config();
  const auto spare_of = [&]([[maybe_unused]] int tokens) {  // activations, scratch, padding of tiles
    std::size_t bytes = weights / 64 + (std::size_t{64} << 20);
    const Heads heads = widest_heads(shape);
    if constexpr (requires { B::reserved_bytes(heads, 0, 0, 0); }) {
      const std::int64_t product = widest_activations(shape, source.settings());
      bytes += B::reserved_bytes(heads, product, shape.vocab, tokens, mixture_widths(shape));
    }
    return bytes;
  };
  const std::size_t spare = spare_of(context);
  if (weights + cache + spare <= free) return;
  const auto fits = [&](int tokens) { return weights + layout.bytes_of(tokens) + spare_of(tokens) <= free; };
  std::string advice;
  if (fits(64)) {
    int low = 64, high = context;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    advice = text("Set the context (LoadOptions::context, --context) to ", low / 64 * 64, " or less");
  } else {
    const auto four_bits = static_cast<std::size_t>(int4_bytes(source.config(), {source.settings().tied_embeddings}));
    const bool helps = type != WeightType::as_stored && four_bits + spare_of(64) <= free;
    advice = helps ? text("In 4-bit format its weights take about ", text_of_bytes(four_bits),
                          " and would fit: use an AWQ checkpoint, or slm quantize")
                   : text("Use a smaller model, a device with more memory, or the backend cpu");
  }
  throw Error("gpu.out-of-memory",
              text("'", detail::name_of_path(source.folder()), "' needs ", text_of_bytes(weights + cache + spare),
                   " on ", device.info().name, ": ", text_of_bytes(weights), " of weights, ", text_of_bytes(cache),
                   " of KV cache for ", context, " tokens and some scratch memory; ", text_of_bytes(free), " of ",
                   text_of_bytes(device.info().memory_bytes), " are free"),
              advice);
}

}}
