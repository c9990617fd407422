// mosaic_gpt: MPT's predecessor of early 2023, with different names (mpt-1b-redpajama-200b).
#pragma once

#include "slm/io/families/mpt.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_mosaic_gpt(const JsonFields& fields, ModelDescription& model) {
  const bool alibi = fields.boolean("alibi", false);
  read_mosaic(fields, fields, read_expansion(fields, "mlp_ratio"), fields.boolean("no_bias", false), true, alibi,
              model);
  model.settings.alibi_power_of_two = false;
  model.settings.clip_qkv = fields.number("attn_clip_qkv", 1e-6, 1e6, 0);
  if (fields.boolean("attn_qk_ln", false)) model.config.qk_norm = QkNorm::whole;
}

inline constexpr Family mosaic_gpt{.model_type = "mosaic_gpt",
                                   .architecture = "MosaicGPT",
                                   .names = {.prefix = "transformer.",
                                             .embedding = "wte",
                                             .positions = "wpe",
                                             .final_norm = "ln_f",
                                             .layer = "blocks.{}.",
                                             .attention_norm = "ln_1",
                                             .mlp_norm = "ln_2",
                                             .q_norm = "attn.q_ln",
                                             .k_norm = "attn.k_ln",
                                             .qkv = {"attn.Wqkv"},
                                             .attention_out = "attn.out_proj",
                                             .up = {"mlp.mlp_up"},
                                             .down = "mlp.mlp_down"},
                                   .read = read_mosaic_gpt};

}}}
