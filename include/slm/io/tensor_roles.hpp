// Role: the function of a tensor in its model, and TensorName: its name and shape in a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

/// The function of a tensor in its model. A role has weights (several if a file stores the parts of one matrix
/// separately) and optional biases.
enum class Role {
  embedding,
  positions,    // the learned position table
  project_in,   // embedding -> hidden
  project_out,  // hidden -> embedding
  input_table,  // of the layers' own inputs
  input_from_embedding,
  input_norm,
  stream_in,   // of residual streams: the matrices of the streams but the first
  stream_out,  // likewise, after the layers
  // per layer:
  attention_norm,
  mlp_norm,
  attention_output_norm,
  mlp_output_norm,
  mixed_norm,  // of the input of attention_out
  gated_norm,  // of the input of down
  q_norm,
  k_norm,
  sinks,
  mixer_in,
  mixer_conv,
  mixer_decay,
  mixer_dt_bias,
  mixer_skip,
  mixer_norm,
  mixer_out,
  qkv,
  latent_query_low,  // of latent attention: see LatentTable
  latent_query_norm,
  latent_query,
  latent,
  latent_norm,
  latent_heads,
  attention_out,
  gate_up,  // up only, if the MLP has no gate
  down_divisor,
  activation,  // the parameters of xIELU
  router,      // of a layer with experts
  choice_bias,
  experts_up,    // gate and up of each expert
  experts_down,  // of each expert
  shared_up,     // gate and up of the shared expert
  shared_down,
  shared_gate,
  router_norm,         // of experts beside an MLP: the scale of the router's input
  expert_factors,      // of their weights
  expert_norm,         // of their input
  expert_output_norm,  // of their result
  beside_norm,         // of the MLP's output
  own_input_gate,      // of the layer's own input
  own_input_out,
  own_input_norm,
  layer_factor,        // of the layer's output
  stream_router_norm,  // of residual streams: see StreamTable
  stream_router,
  stream_prediction,
  stream_correction,
  stream_scale,
  low_rank_in,  // of the branch beside attention
  low_rank_out,
  low_rank_norm,
  down,
  // after the layers:
  final_norm,
  head,
};

constexpr bool is_of_layer(Role role) { return Role::attention_norm <= role && role <= Role::down; }
constexpr bool is_of_latent(Role role) { return Role::latent_query_low <= role && role <= Role::latent_heads; }
constexpr bool is_of_mixer(Role role) { return Role::mixer_in <= role && role <= Role::mixer_out; }

/// Matrices of products, which a file may store as 4-bit codes.
constexpr bool is_linear(Role role) {
  switch (role) {
    case Role::project_in:
    case Role::project_out:
    case Role::mixer_in:
    case Role::mixer_out:
    case Role::qkv:
    case Role::latent_query_low:
    case Role::latent_query:
    case Role::latent:
    case Role::latent_heads:
    case Role::attention_out:
    case Role::gate_up:
    case Role::down:
    case Role::experts_up:
    case Role::experts_down:
    case Role::shared_up:
    case Role::shared_down:
    case Role::input_from_embedding:
    case Role::own_input_gate:
    case Role::own_input_out:
    case Role::stream_in:
    case Role::stream_out:
    case Role::low_rank_in:
    case Role::low_rank_out:
    case Role::head: return true;
    default: return false;
  }
}

/// Divisors of the input of `down`, which only some checkpoints of a family have.
constexpr bool is_optional(Role role) { return role == Role::down_divisor; }

struct TensorName {
  std::string name;
  std::vector<std::int64_t> shape;  // as stored
  bool transposed = false;          // the matrix is stored [in, out]

  /// The name without its last part: "model.layers.0.mlp.up_proj.weight" -> "model.layers.0.mlp.up_proj".
  std::string module() const { return name.substr(0, name.rfind('.')); }
};

/// "mlp.experts.{}.up_proj" -> "mlp.experts.3.up_proj"
inline std::string of_expert(std::string_view pattern, int expert) {
  const std::size_t number = pattern.find("{}");
  return text(pattern.substr(0, number), expert, pattern.substr(number + 2));
}

}}
