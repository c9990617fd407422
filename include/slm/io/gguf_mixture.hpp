// The mixture of experts that the metadata and the tensors of a GGUF file describe.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/family.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Architectures whose layers may have experts.
constexpr bool gguf_has_experts(std::string_view architecture) {
  return architecture == "qwen3moe" || architecture == "qwen2moe" || architecture == "llama" ||
         architecture == "olmoe" || architecture == "granitemoe" || architecture == "ernie4_5-moe" ||
         architecture == "gpt-oss" || architecture == "lfm2moe" || architecture == "qwen35moe" ||
         architecture == "qwen3next" || architecture == "granitehybrid" || architecture == "gemma4" ||
         architecture == "deepseek2";
}

/// Reads config.mixture, whose widths the file may leave to the tensors. config has the sizes of the layers.
class GgufMixtureReader {
 public:
  GgufMixtureReader(const GgufFile& file, std::string_view architecture, ModelDescription& model)
      : file_(file), fields_(file.fields()), architecture_(architecture), model_(model) {}

  void read() {
    MixtureConfig& mixture = model_.config.mixture;
    mixture.experts = fields_.integer(key("expert_count"), 0, 1024, 0);
    if (mixture.experts == 0) return;
    read_layers();
    mixture.chosen = fields_.integer(key("expert_used_count"), 1, mixture.experts);
    mixture.ffn = fields_.integer(key("expert_feed_forward_length"), 1, 1 << 22, model_.config.ffn);
    mixture.shared_ffn = has("ffn_up_shexp.weight") ? rows_of("ffn_up_shexp.weight") : 0;
    mixture.shared_gate = has("ffn_gate_inp_shexp.weight");
    mixture.router_bias = has("ffn_gate_inp.bias");
    mixture.choice_bias = has("exp_probs_b.bias");
    mixture.expert_bias = has("ffn_down_exps.bias");
    if (model_.settings.dense_layers.empty() && !mixture.beside_mlp) model_.config.ffn = mixture.ffn;
    read_router();
  }

 private:
  std::string key(std::string_view name) const { return text(architecture_, ".", name); }

  /// A tensor of the first layer with experts.
  const GgufTensor* find(std::string_view name) const { return file_.find(text("blk.", first_, ".", name)); }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int rows_of(std::string_view name) const {
    const GgufTensor& tensor = *find(name);
    const std::int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
    return static_cast<int>(std::clamp<std::int64_t>(rows, 0, 1 << 24));  // the loader compares the shapes
  }

  /// Only the tensors show which layers have experts.
  void read_layers() {
    std::vector<bool> dense;
    for (int l = 0; l < model_.config.layers; ++l)
      dense.push_back(file_.find(text("blk.", l, ".ffn_gate_inp.weight")) == nullptr);
    const auto sparse = std::find(dense.begin(), dense.end(), false);
    if (sparse == dense.end()) {
      throw Error("checkpoint.missing-tensor",
                  text("'", fields_.file(), "' has ", model_.config.mixture.experts,
                       " experts and no tensor 'blk.0.ffn_gate_inp.weight'"),
                  "Convert the model again, or get its file from another source");
    }
    first_ = static_cast<int>(sparse - dense.begin());
    if (std::count(dense.begin(), dense.end(), true) > 0) model_.settings.dense_layers = std::move(dense);
  }

  void read_router() {
    RouterSettings& router = model_.settings.router;
    // Files of DeepSeek-V3's relatives may lack the function; softmax has no bias of the choice.
    const bool latent = architecture_ == "deepseek2";
    const int usual = latent && model_.config.mixture.choice_bias ? 2 : 1;
    const int function = fields_.integer(key("expert_gating_func"), 0, 1 << 20, usual);
    const bool sigmoid = (architecture_ == "lfm2moe" || latent) && function == 2;
    if (function != 1 && !sigmoid) {
      throw Error("config.unsupported",
                  text("'", fields_.file(), "' requires the function ", function, " of a router (",
                       key("expert_gating_func"), ")"),
                  "See docs/models.md for the supported families and their features");
    }
    if (sigmoid) {
      model_.config.mixture.scores = RouterScores::sigmoid;
      router.added_to_sum = latent ? 1e-20f : 1e-6f;
    }
    if (latent) read_groups(sigmoid ? 2 : 1);
    const bool normalizes = architecture_ != "qwen2moe" && architecture_ != "olmoe" && !latent;
    router.normalizes = fields_.boolean(key("expert_weights_norm"), normalizes);
    if (architecture_ == "gpt-oss") {  // the files lack both
      router.gate_limit = 7;
      router.gate_alpha = 1.702f;
    }
    if (architecture_ == "ernie4_5-moe") router.least_sum = 1e-12f;
    router.scale = fields_.number(key("expert_weights_scale"), 0, 1e6, 1);
    if (router.scale == 0) router.scale = 1;
  }

  /// best: experts of a group that count for its mark.
  void read_groups(int best) {
    const MixtureConfig& mixture = model_.config.mixture;
    const std::string kept_key = key("expert_group_used_count");
    const int groups = fields_.integer(key("expert_group_count"), 0, 1024, 1);
    if (groups <= 1) return;
    const int kept = fields_.integer(kept_key, 1, groups), size = mixture.experts / groups;
    if (mixture.experts % groups != 0 || size < best || mixture.chosen > kept * size)
      throw fields_.bad(kept_key, text("groups of ", mixture.experts, " experts with the ", mixture.chosen, " chosen"));
    model_.settings.router.groups = groups;
    model_.settings.router.kept_groups = kept;
    model_.settings.router.by_best = best == 1;
  }

  const GgufFile& file_;
  const GgufFields& fields_;
  std::string_view architecture_;
  ModelDescription& model_;
  int first_ = 0;
};

}}}
