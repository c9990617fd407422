// Adapter: a LoRA adapter in memory, as low-rank changes of a model's products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// The products that an adapter may change. Those from qkv on are products of a layer.
enum class AdaptedProduct {
  embedding,
  project_in,
  project_out,
  head,
  qkv,
  attention_out,
  gate_up,
  down,
  mixer_in,
  mixer_out,
  attention_gate
};

/// The index of a product among all products of a model.
constexpr int number_of(AdaptedProduct product, int layer = 0) {
  constexpr int of_layer = static_cast<int>(AdaptedProduct::attention_gate) - static_cast<int>(AdaptedProduct::head);
  return static_cast<int>(product) + of_layer * layer;
}

/// A change of outputs [first, first + out) of a product y of x: t = scale * down . x, y += t . up, summed in order of
/// t's elements.
struct LowRank {
  DType type = DType::f32;          // element type of both matrices: f32, f16 or bf16
  const std::byte* down = nullptr;  // LoRA's A: [rank, in]; for the embedding, one column per token
  const std::byte* up = nullptr;    // LoRA's B, transposed: [rank, out]
  float scale = 1;
  int rank = 0;
  std::int64_t in = 0;
  std::int64_t first = 0;
  std::int64_t out = 0;
};

/// Calls use(Element{}) with the element type of the matrices.
template <class Use>
constexpr void visit_elements(const LowRank& change, Use use) {
  switch (change.type) {
    case DType::f16: return use(half_t{});
    case DType::bf16: return use(bfloat16_t{});
    default: return use(float{});
  }
}

/// Immutable after construction; shared by any number of sequences and threads. The matrices are in host memory, or in
/// device memory after placement. They are contiguous in the order of the changes, starting at the first `down`,
/// aligned to cache lines; `bytes` is their total size.
struct Adapter {
  std::string name = {};                                // name in messages
  std::uint64_t digest = 0;                             // digest of all elements; never 0, which means no adapter
  std::shared_ptr<const void> model = nullptr;          // the model it belongs to; ModelInfo::identity after placement
  std::vector<LowRank> changes = {};                    // sorted by product, then by first output
  std::vector<int> begins = {};                         // index of each product's first change, and the end of the last
  std::shared_ptr<const std::byte[]> memory = nullptr;  // owns all matrices and the table
  const void* table = nullptr;                          // lookup table for device kernels; null on the host
  std::size_t bytes = 0;

  /// The changes of one product.
  std::span<const LowRank> of(int product) const {
    if (product < 0 || static_cast<std::size_t>(product) + 1 >= begins.size()) return {};
    const auto begin = static_cast<std::size_t>(begins[static_cast<std::size_t>(product)]);
    const auto end = static_cast<std::size_t>(begins[static_cast<std::size_t>(product) + 1]);
    return std::span(changes).subspan(begin, end - begin);
  }
};

/// Allocates host memory for matrices, not initialised. A device may allocate pinned memory, from which it copies
/// faster.
using HostMemory = std::function<std::shared_ptr<std::byte[]>(std::size_t bytes)>;

/// A handle; null: no adapter.
using AdapterRef = std::shared_ptr<const Adapter>;

}}
