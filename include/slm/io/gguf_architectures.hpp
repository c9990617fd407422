// The architectures of GGUF files: traits and tensor names.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/family.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 {

/// One value of general.architecture.
struct GgufArchitecture {
  std::string_view name;
  Family apart;             // with separate matrices for queries, keys and values
  Family fused;             // with one fused matrix
  ModelConfig traits = {};  // those that do not depend on the file; qk_norm: of a norm whose weights are [head_dim]
  bool pairs = false;       // rows of queries and keys are ordered so that adjacent ones rotate together
};

namespace detail {

constexpr ExpertTable gguf_experts(bool wide_choice_bias) {
  return {.router = "ffn_gate_inp",
          .choice_bias = "exp_probs_b.bias",
          .wide_choice_bias = wide_choice_bias,
          .up = {"ffn_gate_exps.{}", "ffn_up_exps.{}"},
          .down = "ffn_down_exps.{}",
          .all_up = {"ffn_gate_exps.weight", "ffn_up_exps.weight"},
          .all_down = "ffn_down_exps.weight",
          .all_up_bias = {"ffn_gate_exps.bias", "ffn_up_exps.bias"},
          .all_down_bias = "ffn_down_exps.bias",
          .shared_up = {"ffn_gate_shexp", "ffn_up_shexp"},
          .shared_down = "ffn_down_shexp",
          .shared_gate = "ffn_gate_inp_shexp"};
}

/// up: names of gate and up, or of the fused matrix, or of up alone.
constexpr GgufArchitecture gguf_architecture(std::string_view name, std::string_view model_type,
                                             std::array<std::string_view, 2> up, const ModelConfig& traits = {},
                                             bool pairs = false) {
  Family family{.model_type = model_type,
                .architecture = name,
                .names = {.prefix = {},
                          .embedding = "token_embd",
                          .positions = "position_embd",
                          .final_norm = "output_norm",
                          .head = "output",
                          .layer = "blk.{}.",
                          .attention_norm = "attn_norm",
                          .mlp_norm = name == "seed_oss" || name == "gpt-oss" ? "post_attention_norm" : "ffn_norm",
                          .attention_output_norm = "post_attention_norm",
                          .mlp_output_norm = "post_ffw_norm",
                          .q_norm = "attn_q_norm",
                          .k_norm = "attn_k_norm",
                          .sinks = "attn_sinks.weight",
                          .qkv = {"attn_q", "attn_k", "attn_v"},
                          .attention_out = "attn_output",
                          .up = up,
                          .down = "ffn_down",
                          .activation_scales = name == "mpt" ? std::string_view{"ffn_act.scales"} : std::string_view{},
                          .experts = gguf_experts(name == "ernie4_5-moe")},
                .read = nullptr};
  GgufArchitecture made{name, family, family, traits, pairs};
  made.fused.names.qkv = {"attn_qkv"};
  return made;
}

constexpr GgufArchitecture gemma4_architecture(GgufArchitecture made) {
  TensorTable& names = made.apart.names;
  names.layer_factor = "layer_output_scale.weight";
  names.inputs = {.table = "per_layer_token_embd",
                  .from_embedding = "per_layer_model_proj",
                  .norm = "per_layer_proj_norm",
                  .gate = "inp_gate",
                  .out = "proj",
                  .output_norm = "post_norm"};
  names.experts.all_up = {"ffn_gate_up_exps.weight"};
  names.experts.router_norm = "ffn_gate_inp.scale";
  names.experts.factors = "ffn_down_exps.scale";
  names.experts.norm = "pre_ffw_norm_2";
  names.experts.output_norm = "post_ffw_norm_2";
  names.experts.beside_norm = "post_ffw_norm_1";
  return made;
}

constexpr GgufArchitecture gemma3n_architecture(GgufArchitecture made) {
  made = gemma4_architecture(made);
  TensorTable& names = made.apart.names;
  names.layer_factor = {};
  names.experts = {};
  names.streams = {.in = "altup_proj.{}",
                   .out = "altup_unembd_proj.{}",
                   .all_in = "altup_proj.weight",
                   .all_out = "altup_unembd_proj.weight",
                   .router_norm = "altup_router_norm",
                   .router = "altup_router",
                   .prediction = "altup_predict_coef",
                   .correction = "altup_correct_coef",
                   .scale = "altup_correct_scale.weight",
                   .low_rank_in = "laurel_l",
                   .low_rank_out = "laurel_r",
                   .low_rank_norm = "laurel_post_norm"};
  return made;
}

/// Older files have the keys and values of all heads in one matrix.
constexpr GgufArchitecture latent_architecture(GgufArchitecture made) {
  LatentTable& names = made.apart.names.latent;
  names = {.query = "attn_q",
           .query_latent = "attn_q_a",
           .query_norm = "attn_q_a_norm",
           .query_heads = "attn_q_b",
           .latent = "attn_kv_a_mqa",
           .norm = "attn_kv_a_norm",
           .heads = {"attn_k_b", "attn_v_b"}};
  made.fused = made.apart;
  made.fused.names.latent.heads = {"attn_kv_b"};
  return made;
}

constexpr GgufArchitecture recurrent_architecture(GgufArchitecture made) {
  TensorTable& names = made.apart.names;
  names.of_gguf = true;
  if (made.name.starts_with("lfm2")) {
    names.final_norm = "token_embd_norm";
    names.mixer_in = {"shortconv.in_proj"};
    names.mixer_conv = "shortconv.conv";
    names.mixer_out = "shortconv.out_proj";
  } else if (made.traits.attention_gate) {
    names.mlp_norm = "post_attention_norm";
    names.mixer_in = {"attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha"};
    if (made.name == "qwen3next") names.mixer_in = {"attn_qkv", "attn_gate", "ssm_ba"};
    names.mixer_conv = "ssm_conv1d";
    names.mixer_out = "ssm_out";
    names.mixer_norm = "ssm_norm";
    names.mixer_vectors = {"ssm_a", "ssm_dt.bias"};
  } else {
    if (made.name == "nemotron_h") names.mlp_norm = "attn_norm";
    names.mixer_in = {"ssm_in"};
    names.mixer_conv = "ssm_conv1d";
    names.mixer_out = "ssm_out";
    names.mixer_norm = "ssm_norm";
    names.mixer_vectors = {"ssm_a", "ssm_dt.bias", "ssm_d"};
  }
  return made;
}

inline constexpr std::array<std::string_view, 2> gate_and_up{"ffn_gate", "ffn_up"}, up_alone{"ffn_up"};

constexpr ModelConfig plain_mlp(ActivationKind activation, NormKind norm = NormKind::layer,
                                BlockOrder order = BlockOrder::pre_norm) {
  return {.norm = norm, .activation = activation, .gated = false, .order = order};
}

}  // namespace detail

/// The supported architectures of llama.cpp. Where files cannot tell, slm follows the model: GPT-NeoX and Falcon have
/// the erf GELU, which llama.cpp replaces by the tanh GELU.
inline constexpr GgufArchitecture gguf_architectures[] = {
    detail::gguf_architecture("llama", "llama", detail::gate_and_up, {}, true),
    detail::gguf_architecture("qwen2", "qwen2", detail::gate_and_up, {}),
    detail::gguf_architecture("qwen3", "qwen3", detail::gate_and_up, {.qk_norm = QkNorm::per_head}),
    detail::gguf_architecture("phi2", "phi", detail::up_alone,
                              detail::plain_mlp(ActivationKind::gelu_tanh, NormKind::layer, BlockOrder::parallel)),
    detail::gguf_architecture("phi3", "phi3", detail::up_alone, {}),
    detail::gguf_architecture("gpt2", "gpt2", detail::up_alone,
                              {.norm = NormKind::layer,
                               .activation = ActivationKind::gelu_tanh,
                               .gated = false,
                               .positions = Positions::learned}),
    detail::gguf_architecture("olmo", "olmo", detail::gate_and_up,
                              {.norm = NormKind::layer, .norm_affine = NormAffine::none}, true),
    detail::gguf_architecture("mpt", "mpt", detail::up_alone, detail::plain_mlp(ActivationKind::gelu_erf)),
    detail::gguf_architecture("gemma", "gemma", detail::gate_and_up, {.activation = ActivationKind::gelu_tanh}),
    detail::gguf_architecture("gemma2", "gemma2", detail::gate_and_up,
                              {.activation = ActivationKind::gelu_tanh, .order = BlockOrder::sandwich}),
    detail::gguf_architecture("gemma3", "gemma3_text", detail::gate_and_up,
                              {.activation = ActivationKind::gelu_tanh, .order = BlockOrder::sandwich}),
    detail::gemma4_architecture(detail::gguf_architecture(
        "gemma4", "gemma4_text", detail::gate_and_up,
        {.activation = ActivationKind::gelu_tanh, .order = BlockOrder::sandwich, .qk_norm = QkNorm::per_head})),
    detail::gemma3n_architecture(detail::gguf_architecture(
        "gemma3n", "gemma3n_text", detail::gate_and_up,
        {.activation = ActivationKind::gelu_tanh, .order = BlockOrder::sandwich, .qk_norm = QkNorm::per_head})),
    detail::gguf_architecture("smollm3", "smollm3", detail::gate_and_up, {}, true),
    detail::gguf_architecture("granite", "granite", detail::gate_and_up, {}, true),
    detail::gguf_architecture("minicpm", "minicpm", detail::gate_and_up, {}, true),
    detail::gguf_architecture("olmo2", "olmo2", detail::gate_and_up, {.order = BlockOrder::output_norm}),
    detail::gguf_architecture("exaone", "exaone", detail::gate_and_up),
    detail::gguf_architecture("exaone4", "exaone4", detail::gate_and_up, {.order = BlockOrder::output_norm}),
    detail::gguf_architecture("mistral3", "ministral3", detail::gate_and_up, {}, true),
    detail::gguf_architecture("starcoder2", "starcoder2", detail::up_alone,
                              detail::plain_mlp(ActivationKind::gelu_tanh)),
    detail::gguf_architecture("stablelm", "stablelm", detail::gate_and_up, {.norm = NormKind::layer}),
    detail::gguf_architecture("hunyuan-dense", "hunyuan_v1_dense", detail::gate_and_up, {.qk_norm = QkNorm::rotated}),
    detail::gguf_architecture("cohere2", "cohere2", detail::gate_and_up,
                              {.norm = NormKind::layer, .rotates_pairs = true, .order = BlockOrder::parallel}),
    detail::gguf_architecture("command-r", "cohere", detail::gate_and_up,
                              {.norm = NormKind::layer, .rotates_pairs = true, .order = BlockOrder::parallel}),
    detail::gguf_architecture("gptneox", "gpt_neox", detail::up_alone,
                              detail::plain_mlp(ActivationKind::gelu_erf, NormKind::layer, BlockOrder::parallel_norms)),
    detail::gguf_architecture("falcon", "falcon", detail::up_alone,
                              detail::plain_mlp(ActivationKind::gelu_erf, NormKind::layer, BlockOrder::parallel)),
    detail::gguf_architecture("glm4", "glm4", detail::up_alone, {.rotates_pairs = true, .order = BlockOrder::sandwich}),
    detail::gguf_architecture("ernie4_5", "ernie4_5", detail::gate_and_up, {.rotates_pairs = true}),
    detail::gguf_architecture("internlm2", "internlm2", detail::gate_and_up, {}, true),
    detail::gguf_architecture("nemotron", "nemotron", detail::up_alone,
                              detail::plain_mlp(ActivationKind::relu_squared)),
    detail::gguf_architecture("arcee", "arcee", detail::up_alone,
                              detail::plain_mlp(ActivationKind::relu_squared, NormKind::rms), true),
    detail::gguf_architecture("apertus", "apertus", detail::up_alone,
                              detail::plain_mlp(ActivationKind::xielu, NormKind::rms)),
    detail::gguf_architecture("seed_oss", "seed_oss", detail::gate_and_up),
    detail::gguf_architecture("qwen3moe", "qwen3_moe", detail::gate_and_up, {.qk_norm = QkNorm::per_head}),
    detail::gguf_architecture("qwen2moe", "qwen2_moe", detail::gate_and_up),
    detail::gguf_architecture("olmoe", "olmoe", detail::gate_and_up),
    detail::gguf_architecture("granitemoe", "granitemoe", detail::gate_and_up, {}, true),
    detail::gguf_architecture("ernie4_5-moe", "ernie4_5_moe", detail::gate_and_up, {.rotates_pairs = true}),
    detail::latent_architecture(
        detail::gguf_architecture("deepseek2", "deepseek_v2", detail::gate_and_up, {.rotates_pairs = true})),
    detail::gguf_architecture("gpt-oss", "gpt_oss", detail::gate_and_up, {.sinks = true}),
    detail::recurrent_architecture(
        detail::gguf_architecture("lfm2", "lfm2", detail::gate_and_up, {.qk_norm = QkNorm::per_head})),
    detail::recurrent_architecture(
        detail::gguf_architecture("lfm2moe", "lfm2_moe", detail::gate_and_up, {.qk_norm = QkNorm::per_head})),
    detail::recurrent_architecture(detail::gguf_architecture("qwen35", "qwen3_5_text", detail::gate_and_up,
                                                             {.qk_norm = QkNorm::per_head, .attention_gate = true})),
    detail::recurrent_architecture(detail::gguf_architecture("qwen35moe", "qwen3_5_moe_text", detail::gate_and_up,
                                                             {.qk_norm = QkNorm::per_head, .attention_gate = true})),
    detail::recurrent_architecture(
        detail::gguf_architecture("granitehybrid", "granitemoehybrid", detail::gate_and_up, {}, true)),
    detail::recurrent_architecture(detail::gguf_architecture("falcon-h1", "falcon_h1", detail::gate_and_up)),
    detail::recurrent_architecture(detail::gguf_architecture(
        "nemotron_h", "nemotron_h", detail::up_alone,
        {.activation = ActivationKind::relu_squared, .gated = false, .positions = Positions::none})),
    detail::recurrent_architecture(detail::gguf_architecture("qwen3next", "qwen3_next", detail::gate_and_up,
                                                             {.qk_norm = QkNorm::per_head, .attention_gate = true})),
};

namespace detail {

constexpr GgufArchitecture falcon_with_two_norms() {
  GgufArchitecture made = gguf_architecture(
      "falcon", "falcon", up_alone, plain_mlp(ActivationKind::gelu_erf, NormKind::layer, BlockOrder::parallel_norms));
  for (Family* family : {&made.apart, &made.fused}) {
    family->names.attention_norm = "attn_norm_2";
    family->names.mlp_norm = "attn_norm";
  }
  return made;
}
inline constexpr GgufArchitecture falcon_two_norms = falcon_with_two_norms();

/// Falcon 40B and 180B have a norm more than 7B, and other names of norms.
inline const GgufArchitecture& variant_of(const GgufArchitecture& known, bool two_norms) {
  return known.name == "falcon" && two_norms ? falcon_two_norms : known;
}

}  // namespace detail

/// The architecture of a file. Throws Error, stating the kind of file, if it is not a supported model.
inline const GgufArchitecture& architecture_of(const GgufFile& file) {
  const GgufFields& fields = file.fields();
  const std::string_view name = fields.string("general.architecture");
  const std::string_view kind = fields.string("general.type", "model");
  if (kind == "adapter") {
    throw Error("gguf.adapter", text("'", fields.file(), "' is an adapter (LoRA), not a model"),
                "Name the file of its base model");
  }
  if (name == "clip" || kind == "mmproj") {
    throw Error("gguf.projector", text("'", fields.file(), "' is a multimodal projector, not a language model"),
                "Name the file of the language model");
  }
  const auto known = std::find_if(std::begin(gguf_architectures), std::end(gguf_architectures),
                                  [&](const auto& architecture) { return architecture.name == name; });
  if (known == std::end(gguf_architectures)) {
    std::string names;
    for (const auto& architecture : gguf_architectures) names += text(names.empty() ? "" : ", ", architecture.name);
    throw Error("gguf.unsupported-architecture",
                text("'", fields.file(), "' is of the architecture ", quote(name), ", which slm does not support"),
                text("Use a model with one of the architectures ", names));
  }
  if (file.tensors().empty()) {
    throw Error("gguf.no-tensors", text("'", fields.file(), "' has a vocabulary but no weights"),
                "Name the file of the whole model");
  }
  return detail::variant_of(*known, file.find("blk.0.attn_norm_2.weight") != nullptr);
}

}}
