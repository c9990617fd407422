// Which product of a model's layer the weights of a role are, and so what an adapter may change.
#pragma once

#include <optional>

#include "slm/formats/adapter.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Which product a role's weights are; nothing for tables of positions, norms and the like.
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
    default: return std::nullopt;
  }
}

}}}
