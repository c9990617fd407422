// Maps roles of weights to products that adapters may change.
#pragma once

#include <optional>

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

}}}
