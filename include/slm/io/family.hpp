// Family: field and tensor names of one architecture's checkpoints. Each family is a file in io/families/.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 {

class JsonFields;

struct Family;

/// The contents of config.json.
struct ModelDescription {
  const Family* family = nullptr;
  ModelConfig config;
  ModelSettings settings;
  bool says_tied = false;                     // whether tied_embeddings is stated by the file or the family
  std::vector<std::string> end_sources = {};  // the source of each of settings.end_tokens, in words
  std::vector<std::string> notes = {};        // deviations from the files' statements, as sentences
};

/// Module names of a layer with experts, below the layer's prefix; {} is the number of an expert. A file may also store
/// the matrices of all experts in one tensor [experts, rows, columns]: its name is a whole tensor name. A single name
/// of `all_up` denotes a tensor with the rows of gate and up.
struct ExpertTable {
  std::string_view router = "mlp.gate";
  std::string_view choice_bias = {};  // a whole tensor name
  bool wide_choice_bias = false;      // stored as [1, experts]
  std::array<std::string_view, 2> up = {"mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"};
  std::string_view down = "mlp.experts.{}.down_proj";
  std::array<std::string_view, 2> all_up = {"mlp.experts.gate_up_proj"};
  std::string_view all_down = "mlp.experts.down_proj";
  std::array<std::string_view, 2> all_up_bias = {};
  std::string_view all_down_bias = {};
  std::array<std::string_view, 2> shared_up = {};
  std::string_view shared_down = {};
  std::string_view shared_gate = {};
  // Of experts beside an MLP:
  std::string_view router_norm = {};  // a whole tensor name
  std::string_view factors = {};      // a whole tensor name
  std::string_view norm = {};         // of the experts' input
  std::string_view output_norm = {};
  std::string_view beside_norm = {};  // of the MLP's output
  bool transposed = false;   // matrices of floats are stored [in, out]; those in MXFP4 are NAME_blocks and NAME_scales
  bool interleaved = false;  // the rows of gate and up alternate in a single matrix `up`
};

/// Module names of the layers' own inputs.
struct InputTable {
  std::string_view table = {};
  std::string_view from_embedding = {};
  std::string_view norm = {};
  // below a layer's prefix:
  std::string_view gate = {};
  std::string_view out = {};
  std::string_view output_norm = {};
};

/// Module names of residual streams.
struct StreamTable {
  std::string_view in = {};  // {} is the number of a stream, from 0 for the second one
  std::string_view out = {};
  std::string_view all_in = {};  // whole names of tensors that hold the matrices of all streams but the first
  std::string_view all_out = {};
  // below a layer's prefix:
  std::string_view router_norm = {};
  std::string_view router = {};      // the stream -> one number a stream
  std::string_view prediction = {};  // these numbers -> the weights of the sums
  std::string_view correction = {};  // likewise -> the factors of the change, less 1
  std::string_view scale = {};       // a whole tensor name
  std::string_view low_rank_in = {};
  std::string_view low_rank_out = {};
  std::string_view low_rank_norm = {};
};

/// Module names of latent attention, below a layer's prefix.
struct LatentTable {
  std::string_view query = {};         // from the layer's input
  std::string_view query_latent = {};  // or from a row of query_rank: its matrix,
  std::string_view query_norm = {};    // its norm
  std::string_view query_heads = {};   // and the queries from it
  std::string_view latent = {};        // the latent and the rotated key
  std::string_view norm = {};          // of the latent
  // One name: a matrix with the rows of unrotated key and value of each head. Two: keys [heads, rank, unrotated] and
  // values [heads, value, rank].
  std::array<std::string_view, 2> heads = {};
};

/// Module names of a checkpoint, without ".weight" and ".bias"; empty if a family lacks the module. A single name
/// instead of two or three denotes a fused matrix with the rows of q, k and v, or of gate and up, in this order.
struct TensorTable {
  /// Prefix of every name except `head`. Files without a head omit it.
  std::string_view prefix = "model.";
  std::string_view embedding = "embed_tokens";
  std::string_view positions = {};    // the learned position table
  std::string_view project_in = {};   // embedding -> hidden, if their widths differ
  std::string_view project_out = {};  // hidden -> embedding
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";
  std::string_view layer = "layers.{}.";  // {} is the layer number; the names below follow it
  std::string_view attention_norm = "input_layernorm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view attention_output_norm = {};
  std::string_view mlp_output_norm = {};
  std::string_view mixed_norm = {};  // of the input of attention_out
  std::string_view gated_norm = {};  // of the input of down
  std::string_view q_norm = {};
  std::string_view k_norm = {};
  std::string_view sinks = {};  // a whole tensor name
  std::array<std::string_view, 3> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::string_view attention_out = "self_attn.o_proj";
  std::array<std::string_view, 2> up = {"mlp.gate_proj", "mlp.up_proj"};
  std::string_view down = "mlp.down_proj";
  // Of recurrent layers. One name of mixer_in: a matrix with all outputs; else delta_net's q | k | v, z, b, a. Three
  // names: the last has b | a. Two: the first has q | k | v | z too. The rows of q | k | v | z and b | a are stored key
  // head by key head.
  std::array<std::string_view, 4> mixer_in = {};
  std::string_view mixer_conv = {};
  std::string_view mixer_out = {};
  std::string_view mixer_norm = {};
  std::array<std::string_view, 3> mixer_vectors = {};  // whole tensor names: of decay, dt_bias, and mamba2's skip
  std::string_view activation_scales = {};  // a whole tensor name: divisors of `down`'s input, if the file has them
  std::array<std::string_view, 4> activation = {};  // whole tensor names: xIELU's alpha_p, alpha_n, beta, epsilon
  ExpertTable experts = {};                         // of the layers with experts
  InputTable inputs = {};
  LatentTable latent = {};
  StreamTable streams = {};
  std::string_view layer_factor = {};  // a whole tensor name
  bool transposed = false;             // the layers' matrices are stored [in, out]
  bool grouped_qkv = false;            // rows of a fused qkv: for each KV head its queries, its key and its value
  bool norm_per_head = false;          // q_norm and k_norm are modules of each head: NAME.0, NAME.1, ...
  bool norms_less_one = false;         // norms are stored as weight - 1
  bool of_gguf = false;                // recurrent layers: decay is -e^A_log, and tensors have GGUF's shapes
};

struct Family {
  std::string_view model_type;    // as in config.json
  std::string_view architecture;  // the class name in "architectures"
  TensorTable names;
  void (*read)(const JsonFields&, ModelDescription&);  // sets config, settings and says_tied
};

}}
