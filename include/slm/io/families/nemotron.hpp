// Nemotron and Arcee: Llama with the squared ReLU, without a gate. Apertus: xIELU and norms of queries and keys.
#pragma once

#include <algorithm>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_arcee(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  model.config.activation = read_activation(fields, "hidden_act", "relu2");
  model.config.gated = false;
  read_biases(fields, model.config);
}

inline void read_nemotron(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, std::max(config.hidden / config.heads, 1));
  if (!fields.has("head_dim")) split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "hidden_act", "relu2");
  config.gated = false;
  read_biases(fields, config);
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 4096);
  model.settings.norm_epsilon = fields.number("norm_eps", 0, 1, 1e-5f);
  read_rope(fields, model, 0.5f);
  read_tied(fields, model);
}

inline void read_apertus(const JsonFields& fields, ModelDescription& model) {
  if (fields.string("hidden_act", "xielu") != "xielu")
    throw unsupported(fields.file(), "an activation other than xielu");
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, std::max(config.hidden / config.heads, 1));
  if (!fields.has("head_dim")) split_evenly(fields.file(), config);
  config.activation = ActivationKind::xielu;
  config.gated = false;
  config.qk_norm = QkNorm::per_head;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 65536);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-5f);
  read_rope(fields, model, 1, 12000000);
  if (!fields.has("rope_parameters") && !fields.has("rope_scaling")) {  // what the family's own code has
    model.settings.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8};
  }
  read_tied(fields, model);
}

inline constexpr Family arcee{
    .model_type = "arcee", .architecture = "ArceeForCausalLM", .names = {.up = {"mlp.up_proj"}}, .read = read_arcee};

inline constexpr Family nemotron{.model_type = "nemotron",
                                 .architecture = "NemotronForCausalLM",
                                 .names = {.up = {"mlp.up_proj"}, .norms_less_one = true},
                                 .read = read_nemotron};

inline constexpr Family apertus{
    .model_type = "apertus",
    .architecture = "ApertusForCausalLM",
    .names = {.attention_norm = "attention_layernorm",
              .mlp_norm = "feedforward_layernorm",
              .q_norm = "self_attn.q_norm",
              .k_norm = "self_attn.k_norm",
              .up = {"mlp.up_proj"},
              .activation = {"mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n", "mlp.act_fn.beta", "mlp.act_fn.eps"}},
    .read = read_apertus};

}}}
