// Reads the recurrent layers of a GGUF file.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/families/layer_shapes.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Whether layers of an architecture may have a mixer.
constexpr bool gguf_recurs(std::string_view architecture) {
  return architecture == "lfm2" || architecture == "lfm2moe" || architecture == "qwen35" ||
         architecture == "qwen35moe" || architecture == "qwen3next" || architecture == "granitehybrid" ||
         architecture == "falcon-h1" || architecture == "nemotron_h";
}

/// Whether blocks behind the last layer may predict further tokens (`nextn`).
constexpr bool gguf_predicts(std::string_view architecture) {
  return architecture == "qwen35" || architecture == "qwen35moe";
}

/// Whether a tensor is of such blocks, or of keys and values of a layer that reads those of another one.
inline bool is_left_out(std::string_view tensor, std::string_view architecture, const ModelConfig& config) {
  if (!tensor.starts_with("blk.")) return false;
  int block = 0;
  const auto number = std::from_chars(tensor.data() + 4, tensor.data() + tensor.size(), block);
  if (number.ec != std::errc{} || block < 0) return false;
  if (block >= config.layers) return gguf_predicts(architecture);
  const std::string_view name(number.ptr, static_cast<std::size_t>(tensor.data() + tensor.size() - number.ptr));
  return config.shapes.borrowing.has(block) &&
         (name == ".attn_k.weight" || name == ".attn_v.weight" || name == ".attn_k_norm.weight");
}

/// Sets kv_heads, the mixer and its layers, and layers without an MLP; layers, hidden and heads must be known.
class GgufMixerReader {
 public:
  /// blocks: layers of the file.
  GgufMixerReader(const GgufFields& fields, std::string_view architecture, int blocks, ModelConfig& config)
      : fields_(fields), architecture_(architecture), blocks_(static_cast<std::size_t>(blocks)), config_(config) {}

  void read() {
    if (architecture_.starts_with("lfm2")) {
      config_.mixer = {.kind = MixerKind::short_conv,
                       .taps = fields_.integer(key("shortconv.l_cache"), 1, 64),
                       .heads = 1,
                       .head_dim = config_.hidden};
      read_layers_by_heads();
    } else if (architecture_.starts_with("qwen3")) {
      read_heads(MixerKind::delta_net);
      config_.mixer.tiled = architecture_ != "qwen3next";
      config_.kv_heads = fields_.integer(key("attention.head_count_kv"), 1, config_.heads);
      read_recurrent_layers();
    } else {
      read_heads(MixerKind::mamba2);
      config_.mixer.conv_bias = true;
      if (architecture_ == "falcon-h1") {
        config_.mixer.norm = MixerNorm::none;
        config_.kv_heads = fields_.integer(key("attention.head_count_kv"), 1, config_.heads);
        for (int l = 0; l < config_.layers; ++l) config_.mixer_layers.add(l);
      } else {
        read_layers_by_heads();
      }
    }
    families::drop_unused_mixer(config_);
  }

 private:
  std::string key(std::string_view name) const { return text(architecture_, ".", name); }

  void read_heads(MixerKind kind) {
    const std::string inner = key("ssm.inner_size");
    const int width = fields_.integer(inner, 1, 1 << 24), heads = fields_.integer(key("ssm.time_step_rank"), 1, 4096);
    if (width % heads != 0) throw fields_.bad(inner, "a multiple of ssm.time_step_rank");
    config_.mixer = {.kind = kind,
                     .taps = fields_.integer(key("ssm.conv_kernel"), 1, 64),
                     .heads = heads,
                     .head_dim = width / heads,
                     .groups = fields_.integer(key("ssm.group_count"), 1, 4096),
                     .state = fields_.integer(key("ssm.state_size"), 1, 4096)};
  }

  /// The layers with attention are those with KV heads. Layers of nemotron_h have one of mixer, attention and MLP.
  void read_layers_by_heads() {
    const std::string name = key("attention.head_count_kv");
    const std::vector<std::int64_t> heads = fields_.integers(name, blocks_);
    std::vector<std::int64_t> widths(blocks_);
    if (architecture_ == "nemotron_h") widths = fields_.integers(key("feed_forward_length"), blocks_);
    config_.kv_heads = 1;
    for (int l = 0; l < config_.layers; ++l) {
      const auto index = static_cast<std::size_t>(l);
      const std::int64_t found = heads[index];
      const bool mlp = widths[index] != 0;
      if (architecture_ == "nemotron_h" && !mlp) config_.no_mlp.add(l);
      if (found == 0) {
        config_.no_attention.add(l);
        if (!mlp) config_.mixer_layers.add(l);
        continue;
      }
      if (found < 0 || found > config_.heads || (config_.kv_heads != 1 && found != config_.kv_heads) || mlp)
        throw fields_.bad(name, "0, or the same number of heads in every layer");
      config_.kv_heads = static_cast<int>(found);
    }
  }

  void read_recurrent_layers() {
    const std::string list = key("attention.recurrent_layers");
    const int interval = fields_.integer(key("full_attention_interval"), 1, 1 << 20, 4);
    std::vector<bool> recurrent;
    if (fields_.has(list)) recurrent = fields_.booleans(list, blocks_);
    for (int l = 0; l < config_.layers; ++l) {
      if (recurrent.empty() ? (l + 1) % interval != 0 : recurrent[static_cast<std::size_t>(l)])
        families::set_recurrent(config_, l);
    }
  }

  const GgufFields& fields_;
  std::string_view architecture_;
  std::size_t blocks_;
  ModelConfig& config_;
};

}}}
