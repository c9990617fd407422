// The layers of Gemma 4 and Gemma 3n in a GGUF file, whose shapes differ.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/families/layer_shapes.hpp"
#include "slm/io/family.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class GgufGemmaReader {
 public:
  GgufGemmaReader(const GgufFile& file, std::string_view architecture, ModelDescription& model)
      : file_(file),
        fields_(file.fields()),
        architecture_(architecture),
        model_(model),
        config_(model.config),
        has_streams_(architecture == "gemma3n") {}

  /// Sets heads, MLPs and the layers with the window; layers, hidden and heads must be known.
  void read_sizes() {
    ModelSettings& settings = model_.settings;
    LayerShapes& shapes = config_.shapes;
    const auto layers = static_cast<std::size_t>(config_.layers);
    settings.window = fields_.integer(key("attention.sliding_window"), 1, 1 << 24);
    settings.windowed_layers = fields_.booleans(key("attention.sliding_window_pattern"), layers);
    const int full = length_of(""), windowed = has_streams_ ? full : length_of("_swa");
    const std::vector<std::int64_t> kv_heads = of_layers("attention.head_count_kv", config_.heads);
    std::vector<families::LayerHeads> heads;
    for (std::size_t l = 0; l < layers; ++l)
      heads.push_back({static_cast<int>(kv_heads[l]), settings.windowed_layers[l] ? windowed : full});
    families::set_layer_heads(fields_.file(), heads, model_);
    read_mlps(of_layers("feed_forward_length", 1 << 22));
    const int shared = fields_.integer(key("attention.shared_kv_layers"), 0, config_.layers - 1, 0);
    for (int l = config_.layers - shared; l < config_.layers; ++l) shapes.borrowing.add(l);
    for (int l = 0; l < config_.layers; ++l) {
      const bool values = file_.find(text("blk.", l, ".attn_v.weight")) != nullptr;
      if (!values && !shapes.borrowing.has(l)) shapes.keys_as_values.add(l);
    }
    shapes.value_norm = true;
    shapes.scaled = !has_streams_;
    shapes.inputs = fields_.integer(key("embedding_length_per_layer_input"), 0, 1 << 16, 0);
    if (has_streams_) return read_streams();
    config_.mixture.beside_mlp = fields_.integer(key("expert_count"), 0, 1024, 0) > 0;
  }

  void read_settings() {
    ModelSettings& settings = model_.settings;
    settings.attention_scale = 1;
    settings.embedding_scale = std::sqrt(static_cast<float>(config_.hidden));
    settings.logit_cap = fields_.number(key("final_logit_softcapping"), 0, 1e6, has_streams_ ? 30 : 0);
    settings.rope_theta = fields_.number(key("rope.freq_base"), 1, 1e12, 1000000);
    settings.windowed_rope_theta = fields_.number(key("rope.freq_base_swa"), 1, 1e12, 10000);
    const int full = length_of("");
    whole("rope.dimension_count", full);
    if (has_streams_) {
      read_gate_cutoffs();
    } else {
      whole("rope.dimension_count_swa", length_of("_swa"));
    }
    if (const auto kind = fields_.string(key("rope.scaling.type"), "none"); kind != "none")
      throw families::unsupported(fields_.file(), text("rope scaling of type ", quote(kind)));
    if (file_.find("rope_freqs.weight") == nullptr) return;
    settings.rope_scaling.kind = RopeScaling::Kind::divisors;
    settings.rope_scaling.short_factors = gguf_divisors(file_, "rope_freqs.weight", full, true);
  }

 private:
  std::string key(std::string_view name) const { return text(architecture_, ".", name); }

  /// Reads sizes that have no key from the tensors of the first layer; the checkpoint compares those of the others.
  void read_streams() {
    config_.streams.count = fields_.integer(key("altup.num_inputs"), 2, most_streams, 4);
    if (const int active = fields_.integer(key("altup.active_idx"), 0, 1 << 20, 0); active != 0)
      throw families::unsupported(fields_.file(), text(key("altup.active_idx"), " ", active, " (slm has 0)"));
    config_.streams.low_rank = gguf_rows(file_, "blk.0.laurel_l.weight");
    config_.streams.scaled = file_.find("blk.0.altup_correct_scale.weight") != nullptr;
    if (config_.shapes.inputs == 0) throw fields_.bad(key("embedding_length_per_layer_input"), "at least 1");
    const int rows = gguf_rows(file_, "per_layer_token_embd.weight");
    if (rows != gguf_rows(file_, "token_embd.weight")) config_.shapes.input_rows = rows;
  }

  /// The number of standard deviations above the mean that a gate must have in each layer.
  void read_gate_cutoffs() {
    const auto layers = static_cast<std::size_t>(config_.layers);
    for (const double cutoff : fields_.numbers(key("activation_sparsity_scale"), layers)) {
      if (std::isnan(cutoff) || cutoff > 40)
        throw fields_.bad(key("activation_sparsity_scale"), "numbers of at most 40");
      model_.settings.gate_cutoffs.push_back(static_cast<float>(cutoff));
    }
  }

  int length_of(std::string_view layers) const {
    const std::string keys = key(text("attention.key_length", layers));
    const int length = fields_.integer(keys, 1, 1024);
    if (fields_.integer(key(text("attention.value_length", layers)), 1, 1 << 20, length) != length)
      throw families::unsupported(fields_.file(), "values of a length other than the keys'");
    return length;
  }

  void whole(std::string_view name, int length) const {
    if (fields_.integer(key(name), 1, 1024, length) != length)
      throw families::unsupported(fields_.file(), text("rotation of a part of the heads (", key(name), ")"));
  }

  /// An integer for each layer, or one for all.
  std::vector<std::int64_t> of_layers(std::string_view name, int largest) const {
    const auto layers = static_cast<std::size_t>(config_.layers);
    const std::string full = key(name);
    if (!fields_.at(full).is_array) return std::vector<std::int64_t>(layers, fields_.integer(full, 1, largest));
    const std::vector<std::int64_t> values = fields_.integers(full, layers);
    for (const std::int64_t value : values) {
      if (value < 1 || value > largest) throw fields_.bad(full, text("integers of 1..", largest));
    }
    return values;
  }

  void read_mlps(const std::vector<std::int64_t>& widths) {
    config_.ffn = static_cast<int>(widths.front());
    for (std::size_t l = 0; l < widths.size(); ++l) {
      const int width = static_cast<int>(widths[l]);
      if (width == config_.ffn) continue;
      if (config_.shapes.ffn != 0 && config_.shapes.ffn != width)
        throw families::unsupported(fields_.file(), "MLPs of more than two widths");
      config_.shapes.ffn = width;
      config_.shapes.wide_mlps.add(static_cast<int>(l));
    }
  }

  const GgufFile& file_;
  const GgufFields& fields_;
  std::string_view architecture_;
  ModelDescription& model_;
  ModelConfig& config_;
  bool has_streams_;
};

}}}
