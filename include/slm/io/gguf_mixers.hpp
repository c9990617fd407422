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
#include "slm/io/families/layer_kinds.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Whether layers of an architecture may have a mixer.
constexpr bool gguf_recurs(std::string_view architecture) { return architecture == "lfm2" || architecture == "qwen35"; }

/// Whether a tensor is of the blocks behind the last layer, which predict further tokens (`nextn`).
inline bool is_behind_layers(std::string_view tensor, std::string_view architecture, int layers) {
  if (architecture != "qwen35" || !tensor.starts_with("blk.")) return false;
  int block = 0;
  return std::from_chars(tensor.data() + 4, tensor.data() + tensor.size(), block).ec == std::errc{} && block >= layers;
}

/// Sets kv_heads, the mixer and its layers; layers, hidden and heads must be known. blocks: layers of the file.
inline void read_gguf_mixer(const GgufFields& fields, std::string_view architecture, int blocks, ModelConfig& config) {
  const auto key = [&](std::string_view name) { return text(architecture, ".", name); };
  if (architecture == "lfm2") {
    config.mixer = {.kind = MixerKind::short_conv,
                    .taps = fields.integer(key("shortconv.l_cache"), 1, 64),
                    .heads = 1,
                    .head_dim = config.hidden};
    const std::string name = key("attention.head_count_kv");
    const std::vector<std::int64_t> heads = fields.integers(name, static_cast<std::size_t>(blocks));
    config.kv_heads = 1;
    for (int l = 0; l < config.layers; ++l) {
      const std::int64_t found = heads[static_cast<std::size_t>(l)];
      if (found == 0) {
        families::set_recurrent(config, l);
        continue;
      }
      if (found < 0 || found > config.heads || (config.kv_heads != 1 && found != config.kv_heads))
        throw fields.bad(name, "0, or the same number of heads in every layer");
      config.kv_heads = static_cast<int>(found);
    }
    return families::drop_unused_mixer(config);
  }
  config.kv_heads = fields.integer(key("attention.head_count_kv"), 1, config.heads);
  config.mixer = {.kind = MixerKind::delta_net,
                  .taps = fields.integer(key("ssm.conv_kernel"), 1, 64),
                  .heads = fields.integer(key("ssm.time_step_rank"), 1, 4096),
                  .groups = fields.integer(key("ssm.group_count"), 1, 4096),
                  .state = fields.integer(key("ssm.state_size"), 1, 4096),
                  .tiled = true};
  const std::string inner = key("ssm.inner_size");
  const int width = fields.integer(inner, 1, 1 << 24);
  config.mixer.head_dim = width / config.mixer.heads;
  if (width % config.mixer.heads != 0) throw fields.bad(inner, "a multiple of ssm.time_step_rank");
  const std::string list = key("attention.recurrent_layers");
  const int interval = fields.integer(key("full_attention_interval"), 1, 1 << 20, 4);
  std::vector<bool> recurrent;
  if (fields.has(list)) recurrent = fields.booleans(list, static_cast<std::size_t>(blocks));
  for (int l = 0; l < config.layers; ++l) {
    if (recurrent.empty() ? (l + 1) % interval != 0 : recurrent[static_cast<std::size_t>(l)])
      families::set_recurrent(config, l);
  }
  families::drop_unused_mixer(config);
}

}}}
