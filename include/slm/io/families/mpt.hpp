// MPT, and models of LLM Foundry.
#pragma once

#include <algorithm>
#include <cmath>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// Reads fields that MosaicML's files of all years share. attention: the object with the attention fields.
inline void read_mosaic(const JsonFields& fields, const JsonFields& attention, double expansion, bool no_bias,
                        bool learned, bool alibi, ModelDescription& model) {
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  config.layers = fields.integer("n_layers", 1, 1024);
  config.hidden = fields.integer("d_model", 1, 1 << 20);
  config.heads = config.kv_heads = fields.integer("n_heads", 1, 4096);
  config.vocab = fields.integer("vocab_size", 1, 1 << 24);
  split_evenly(fields.file(), config);
  config.ffn = static_cast<int>(std::min(expansion * config.hidden, double{1 << 30}));
  config.norm = NormKind::layer;
  config.norm_affine = no_bias ? NormAffine::weight : NormAffine::weight_and_bias;
  config.activation = ActivationKind::gelu_erf;
  config.gated = false;
  config.positions = alibi ? Positions::alibi : learned ? Positions::learned : Positions::none;
  config.attention_bias = no_bias ? AttentionBias::none : AttentionBias::all;
  config.mlp_bias = !no_bias;
  settings.context = fields.integer("max_seq_len", 1, 1 << 24, 2048);
  settings.norm_epsilon = 1e-5f;
  settings.attention_scale = attention.number("softmax_scale", 1e-6, 1e6, 0);
  settings.alibi_bias_max = attention.number("alibi_bias_max", 1e-3, 1e3, 8);
  if (fields.has("logit_scale") && fields.at("logit_scale").is_string()) {
    if (fields.string("logit_scale", "") != "inv_sqrt_d_model") {
      throw fields.bad("logit_scale", "a number or inv_sqrt_d_model", fields.at("logit_scale"));
    }
    settings.logit_scale = static_cast<float>(1 / std::sqrt(double(config.hidden)));
  } else {
    settings.logit_scale = fields.number("logit_scale", 1e-6, 1e6, 1);
  }
  if (attention.boolean("prefix_lm", false))
    throw unsupported(fields.file(), "bidirectional attention in a prefix (prefix_lm)");
  read_tied_by_default(fields, model);
}

inline double read_expansion(const JsonFields& fields, const char* name) {
  return double{fields.number(name, 1e-3, 1e4, 4)};
}

inline void read_mpt(const JsonFields& fields, ModelDescription& model) {
  const Json none = Json::object();
  const JsonFields attention =
      fields.has("attn_config") ? fields.object("attn_config") : JsonFields(none, fields.file());
  // transformers' class and LLM Foundry interpret absent fields differently.
  const Json* architectures = fields.has("architectures") ? &fields.at("architectures") : nullptr;
  const bool transformers = architectures && architectures->is_array() && !architectures->empty() &&
                            architectures->front() == "MptForCausalLM";
  const bool alibi = attention.boolean("alibi", transformers);
  read_mosaic(fields, attention, read_expansion(fields, "expansion_ratio"), fields.boolean("no_bias", transformers),
              fields.boolean("learned_pos_emb", true), alibi, model);
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  settings.norm_epsilon = fields.number("layer_norm_epsilon", 0, 1, fields.number("norm_eps", 0, 1, 1e-5f));
  settings.clip_qkv = attention.number("clip_qkv", 1e-6, 1e6, 0);
  if (attention.boolean("rope", false)) {
    if (alibi) throw contradictory(fields.file(), "both alibi and rope");
    throw unsupported(fields.file(), "MPT with rotary positions");
  }

  const std::string kind = attention.string("attn_type", "multihead_attention");
  if (kind == "multiquery_attention") {
    config.kv_heads = 1;
  } else if (kind == "grouped_query_attention") {
    config.kv_heads = attention.integer("kv_n_heads", 1, 4096);
  } else if (kind != "multihead_attention") {
    throw unsupported(fields.file(), text("the attention ", quote(kind)));
  }
  if (attention.has("kv_n_heads") && attention.integer("kv_n_heads", 1, 4096) != config.kv_heads) {
    throw contradictory(fields.file(),
                        text("attn_type '", kind, "' has ", config.kv_heads, " KV heads, but kv_n_heads states ",
                             attention.integer("kv_n_heads", 1, 4096)));
  }
  const bool whole = attention.boolean("qk_ln", false), per_head = attention.boolean("qk_gn", false);
  if (whole && per_head) throw contradictory(fields.file(), "both qk_ln and qk_gn");
  config.qk_norm = whole ? QkNorm::whole : per_head ? QkNorm::per_head : QkNorm::none;
  if (!attention.boolean("fused_qkv", true)) throw unsupported(fields.file(), "separate projections (fused_qkv false)");
  if (const int before = attention.integer("sliding_window_size", -1, 1 << 24, -1); before >= 0) {
    settings.window = before + 1;  // LLM Foundry does not count the token itself
  }

  const std::string norm = fields.string("norm_type", "low_precision_layernorm");
  if (norm == "rmsnorm" || norm == "low_precision_rmsnorm") {
    config.norm = NormKind::rms;
    config.norm_affine = NormAffine::weight;
  } else if (norm != "layernorm" && norm != "low_precision_layernorm") {
    throw unsupported(fields.file(), text("the norm ", quote(norm)));
  }
  if (fields.has("ffn_config")) {
    const JsonFields ffn = fields.object("ffn_config");
    if (const std::string type = ffn.string("ffn_type", "mptmlp"); type != "mptmlp") {
      throw unsupported(fields.file(), text("the MLP ", quote(type)));
    }
    config.ffn = ffn.integer("ffn_hidden_size", 1, 1 << 22, config.ffn);
    if (ffn.has("ffn_act_fn") && ffn.object("ffn_act_fn").string("name", "gelu") != "gelu") {
      throw unsupported(fields.file(), "an MLP whose activation is not gelu");
    }
  }
}

inline constexpr Family mpt{.model_type = "mpt",
                            .architecture = "MPTForCausalLM",
                            .names = {.prefix = "transformer.",
                                      .embedding = "wte",
                                      .positions = "wpe",
                                      .final_norm = "norm_f",
                                      .layer = "blocks.{}.",
                                      .attention_norm = "norm_1",
                                      .mlp_norm = "norm_2",
                                      .q_norm = "attn.q_ln",
                                      .k_norm = "attn.k_ln",
                                      .qkv = {"attn.Wqkv"},
                                      .attention_out = "attn.out_proj",
                                      .up = {"ffn.up_proj"},
                                      .down = "ffn.down_proj",
                                      .activation_scales = "ffn.act.scales"},
                            .read = read_mpt};

}}}
