// OPT: learned positions from row 2 on, ReLU; the 350m variant is post-norm and has a narrow embedding.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_opt(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  config.layers = fields.integer("num_hidden_layers", 1, 1024);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.ffn = fields.integer("ffn_dim", 1, 1 << 22);
  config.heads = config.kv_heads = fields.integer("num_attention_heads", 1, 4096);
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
  split_evenly(fields.file(), config);
  const int width = fields.integer("word_embed_proj_dim", 1, 1 << 20, config.hidden);
  if (width != config.hidden) config.embedding = width;
  const bool biases = fields.boolean("enable_bias", true);
  const bool affine = fields.boolean("layer_norm_elementwise_affine", true);
  const bool pre_norm = fields.boolean("do_layer_norm_before", true);
  config.norm = NormKind::layer;
  config.norm_affine = affine ? NormAffine::weight_and_bias : NormAffine::none;
  config.order = pre_norm ? BlockOrder::pre_norm : BlockOrder::post_norm;
  config.final_norm = pre_norm && !fields.boolean("_remove_final_layer_norm", false);
  config.activation = read_activation(fields, "activation_function", "relu");
  config.gated = false;
  config.positions = Positions::learned;
  config.attention_bias = biases ? AttentionBias::all : AttentionBias::none;
  config.mlp_bias = biases;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = 1e-5f;
  model.settings.position_offset = 2;
  read_tied_by_default(fields, model);
}

inline constexpr Family opt{.model_type = "opt",
                            .architecture = "OPTForCausalLM",
                            .names = {.prefix = "model.",
                                      .embedding = "decoder.embed_tokens",
                                      .positions = "decoder.embed_positions",
                                      .project_in = "decoder.project_in",
                                      .project_out = "decoder.project_out",
                                      .final_norm = "decoder.final_layer_norm",
                                      .layer = "decoder.layers.{}.",
                                      .attention_norm = "self_attn_layer_norm",
                                      .mlp_norm = "final_layer_norm",
                                      .attention_out = "self_attn.out_proj",
                                      .up = {"fc1"},
                                      .down = "fc2"},
                            .read = read_opt};

}}}
