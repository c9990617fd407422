// Maps roles of weights to products that adapters may change, and stored matrices to their parts of products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/mixer_rows.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The product of a role's weights; nothing for position tables, norms etc.
inline std::optional<AdaptedProduct> adapted_product(Role role) {
  switch (role) {
    case Role::embedding: return AdaptedProduct::embedding;
    case Role::project_in: return AdaptedProduct::project_in;
    case Role::project_out: return AdaptedProduct::project_out;
    case Role::head: return AdaptedProduct::head;
    case Role::qkv: return AdaptedProduct::qkv;
    case Role::attention_out: return AdaptedProduct::attention_out;
    case Role::gate_up: return AdaptedProduct::gate_up;
    case Role::down: return AdaptedProduct::down;
    case Role::mixer_in: return AdaptedProduct::mixer_in;
    case Role::mixer_out: return AdaptedProduct::mixer_out;
    default: return std::nullopt;
  }
}

/// A part of a stored matrix: outputs [first, first + out) of a product.
struct AdaptedPart {
  int product = 0;  // see number_of()
  std::int64_t first = 0;
  std::int64_t out = 0;
  // The stored outputs and inputs in the order of the product; empty: all in their order.
  std::vector<std::int64_t> rows = {};
  std::vector<std::int64_t> columns = {};
};

/// The stored head of a mixer whose heads are in the order of Mixer::tiled.
inline std::int64_t untiled_head(const Mixer& mixer, std::int64_t head) {
  return head % mixer.groups * (mixer.heads / mixer.groups) + head / mixer.groups;
}

/// The stored rows [first, first + out) of q | k | v | z | b | a in the order of a tiled mixer.
inline std::vector<std::int64_t> untiled_rows(const Mixer& mixer, std::int64_t first, std::int64_t out) {
  std::vector<std::int64_t> rows;
  const std::int64_t values = 2 * mixer.keys(), numbers = values + 2 * mixer.inner();
  for (std::int64_t row = first; row < first + out; ++row) {
    const bool is_number = row >= numbers;
    const std::int64_t width = is_number ? 1 : mixer.head_dim, place = row - (is_number ? numbers : values);
    const std::int64_t head = place / width % mixer.heads;
    const std::int64_t stored = row + (untiled_head(mixer, head) - head) * width;
    rows.push_back((row < values ? row : stored) - first);
  }
  return rows;
}

/// The parts of matrix `index` of a role. names: of a Hugging Face folder, also if the model's order is that of GGUF.
inline std::vector<AdaptedPart> adapted_parts(const TensorNames& names, const ModelConfig& config, Role role,
                                              std::size_t index, const TensorName& weight, AdaptedPart part,
                                              int layer) {
  const Mixer& mixer = config.mixer;
  if (role == Role::qkv && config.attention_gate && index == 0) {
    part.out /= 2;
    AdaptedPart gate{.product = number_of(AdaptedProduct::attention_gate, layer), .out = part.out};
    part.rows = rows_of_gated(config, false);
    gate.rows = rows_of_gated(config, true);
    return {std::move(part), std::move(gate)};
  }
  if (role == Role::mixer_in) {
    part.rows = mixer.tiled ? untiled_rows(mixer, part.first, part.out) : names.mixer_in_rows(index);
  } else if (role == Role::mixer_out && mixer.tiled) {
    for (std::int64_t column = 0; column < mixer.inner(); ++column)
      part.columns.push_back(untiled_head(mixer, column / mixer.head_dim) * mixer.head_dim + column % mixer.head_dim);
  } else if (names.is_grouped(weight)) {
    for (std::int64_t row = 0; row < part.out; ++row) part.rows.push_back(names.stored_row(row));
  }
  return {std::move(part)};
}

/// Calls visit(weight, in, out, parts) for every matrix that adapters may change. in, out: its inputs and outputs.
template <class Visit>
void for_each_adapted(const TensorNames& names, const ModelConfig& config, Visit&& visit) {
  names.for_each([&](Role role, int layer, const auto& weights, const auto&) {
    const auto product = adapted_product(role);
    if (!product) return;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const TensorName& weight = weights[i];
      const bool turned = weight.transposed || *product == AdaptedProduct::embedding;
      const std::int64_t out = weight.shape[turned ? 1 : 0], in = weight.shape[turned ? 0 : 1];
      auto parts = adapted_parts(names, config, role, i, weight,
                                 {.product = number_of(*product, layer), .first = first, .out = out}, layer);
      first += parts.front().out;
      visit(weight, in, out, std::move(parts));
    }
  });
}

}}}
