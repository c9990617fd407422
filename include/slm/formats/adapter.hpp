// Adapter: what LoRA has trained on a model, low-rank changes of its products, as numbers on the host.
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

/// The products of a model that an adapter may change. The last four are there in every layer.
enum class AdaptedProduct { embedding, project_in, project_out, head, qkv, attention_out, gate_up, down };

/// The number of a product among all of a model's.
constexpr int number_of(AdaptedProduct product, int layer = 0) { return static_cast<int>(product) + 4 * layer; }

/// Adds to outputs first.. of a product y of x: t = scale * down . x, y += t . up, j by j of t.
struct LowRank {
  DType type = DType::f32;          // of both matrices: f32, f16 or bf16
  const std::byte* down = nullptr;  // LoRA's A: [rank, in]; of the embedding a column is a token's
  const std::byte* up = nullptr;    // LoRA's B, transposed: [rank, out]
  float scale = 1;
  int rank = 0;
  std::int64_t in = 0;
  std::int64_t first = 0;
  std::int64_t out = 0;
};

/// use(Element{}) with the type of the elements of a matrix.
template <class Use>
constexpr void visit_elements(const LowRank& change, Use use) {
  switch (change.type) {
    case DType::f16: return use(half_t{});
    case DType::bf16: return use(bfloat16_t{});
    default: return use(float{});
  }
}

/// It does not change once it is made, and any number of texts and threads share one. Its matrices lie in the memory of
/// the host, or of the device that it was placed on: one behind the other in the order of the changes, from the first's
/// `down` on, each at a cache line, `bytes` in all.
struct Adapter {
  std::string name = {};                                // for messages
  std::uint64_t digest = 0;                             // of all its numbers; never 0, which stands for no adapter
  std::shared_ptr<const void> model = nullptr;          // that it is for; ModelInfo::identity once it was placed
  std::vector<LowRank> changes = {};                    // of product after product, by their first outputs
  std::vector<int> begins = {};                         // of each product's changes, and the end of the last
  std::shared_ptr<const std::byte[]> memory = nullptr;  // of all matrices, and of the table
  const void* table = nullptr;                          // where kernels of a device look it up; null on the host
  std::size_t bytes = 0;

  /// What it changes in a product, by the product's number.
  std::span<const LowRank> of(int product) const {
    if (product < 0 || static_cast<std::size_t>(product) + 1 >= begins.size()) return {};
    const auto begin = static_cast<std::size_t>(begins[static_cast<std::size_t>(product)]);
    const auto end = static_cast<std::size_t>(begins[static_cast<std::size_t>(product) + 1]);
    return std::span(changes).subspan(begin, end - begin);
  }
};

/// Gives memory of the host for so many bytes of matrices, not initialised: a device's own, which it copies faster.
using HostMemory = std::function<std::shared_ptr<std::byte[]>(std::size_t bytes)>;

/// A handle; null: no adapter.
using AdapterRef = std::shared_ptr<const Adapter>;

}}
