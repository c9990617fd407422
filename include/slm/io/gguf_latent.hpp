// The latent attention of a GGUF file.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "slm/config/model_config.hpp"
#include "slm/io/families/layer_shapes.hpp"
#include "slm/io/family.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class GgufLatentReader {
 public:
  GgufLatentReader(const GgufFile& file, std::string_view architecture, ModelDescription& model)
      : file_(file), fields_(file.fields()), architecture_(architecture), model_(model) {}

  /// Sets heads and widths. Older files state the widths of keys and values of single heads under other names.
  void read_sizes() {
    ModelConfig& config = model_.config;
    const bool fused = file_.find("blk.0.attn_kv_b.weight") != nullptr;
    const int rotary = fields_.integer(key("rope.dimension_count"), 2, 1024);
    const int width = fields_.integer(key(fused ? "attention.key_length" : "attention.key_length_mla"), 1, 2048);
    const int value = fields_.integer(key(fused ? "attention.value_length" : "attention.value_length_mla"), 1, 1024);
    const int rank = fields_.integer(key("attention.kv_lora_rank"), 1, 1024);
    if (rotary % 2 != 0 || width <= rotary) {
      throw Error("config.unsound", text("'", fields_.file(), "': ", rotary, " rotated dimensions of keys of ", width),
                  "Convert the model again");
    }
    families::set_latent({.rank = rank,
                          .query_rank = fields_.integer(key("attention.q_lora_rank"), 0, 1 << 20, 0),
                          .unrotated = width - rotary,
                          .value = value},
                         rotary, config);
  }

  /// Files state 0.1 * mscale_all_dim, which is mscale too.
  void read_scale() {
    RopeScaling& scaling = model_.settings.rope_scaling;
    const float mscale = 10 * fields_.number(key("rope.scaling.yarn_log_multiplier"), 0, 1e3, 0);
    if (scaling.kind == RopeScaling::Kind::yarn && mscale != 0) scaling.attention_factor = 1;
    const ModelConfig& config = model_.config;
    model_.settings.attention_scale =
        families::latent_scale(config.latent.unrotated + config.rotary, scaling, double{mscale});
  }

 private:
  std::string key(std::string_view name) const { return text(architecture_, ".", name); }

  const GgufFile& file_;
  const GgufFields& fields_;
  std::string_view architecture_;
  ModelDescription& model_;
};

}}}
