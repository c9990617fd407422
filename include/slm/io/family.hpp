// Family: how the checkpoints of one architecture are described and named. A family is one file in io/families/.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/json.hpp"

namespace slm { inline namespace v0_1 {

struct Family;

/// What config.json says.
struct ModelDescription {
  const Family* family = nullptr;
  ModelConfig config;
  ModelSettings settings;
  bool says_tied = false;                     // whether tied_embeddings is known, by the file or by the family
  std::vector<std::string> end_sources = {};  // what names each of settings.end_tokens, in words
  std::vector<std::string> notes = {};        // what slm takes otherwise than the files say, in sentences
};

/// The modules of a checkpoint, without ".weight" and ".bias". What a family lacks stays empty. One name where two or
/// three could stand is a fused matrix whose rows are those of q, k and v, or of gate and up, in this order.
struct TensorTable {
  /// Before every name but `head`. Files that hold a model without its head leave it out.
  std::string_view prefix = "model.";
  std::string_view embedding = "embed_tokens";
  std::string_view positions = {};    // the table of learned positions
  std::string_view project_in = {};   // embedding -> hidden, where their widths differ
  std::string_view project_out = {};  // hidden -> embedding
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";
  std::string_view layer = "layers.{}.";  // {} is the number of the layer; the names below stand behind it
  std::string_view attention_norm = "input_layernorm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view q_norm = {};
  std::string_view k_norm = {};
  std::array<std::string_view, 3> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::string_view attention_out = "self_attn.o_proj";
  std::array<std::string_view, 2> up = {"mlp.gate_proj", "mlp.up_proj"};
  std::string_view down = "mlp.down_proj";
  std::string_view activation_scales = {};  // a whole tensor name: divisors of `down`'s input, where the file has them
  bool transposed = false;                  // the matrices of the layers are stored [in, out]
};

struct Family {
  std::string_view model_type;    // as config.json has it
  std::string_view architecture;  // the same model in "architectures"
  TensorTable names;
  void (*read)(const JsonFields&, ModelDescription&);  // fills in config, settings and says_tied
};

}}
