// Reads metadata and tensors of a GGUF file -> a model description with the file's tensor names.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/end_tokens.hpp"
#include "slm/io/gguf_architectures.hpp"
#include "slm/io/gguf_families.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/gguf_gemma.hpp"
#include "slm/io/gguf_latent.hpp"
#include "slm/io/gguf_mixers.hpp"
#include "slm/io/gguf_mixture.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

class GgufModelReader {
 public:
  explicit GgufModelReader(const GgufFile& file)
      : file_(file), fields_(file.fields()), architecture_(architecture_of(file)) {}

  ModelDescription read() {
    const bool fused = has("blk.0.attn_qkv.weight") && !gguf_recurs(architecture_.name);
    model_.family = fused || has("blk.0.attn_kv_b.weight") ? &architecture_.fused : &architecture_.apart;
    refuse_other_formulas();
    read_kinds();
    read_sizes();
    GgufMixtureReader(file_, architecture_.name, model_).read();
    read_settings();
    if (is_shaped_gemma(architecture_.name)) {
      GgufGemmaReader(file_, architecture_.name, model_).read_settings();
    } else if (config_.positions == Positions::rope) {
      read_rope();
    }
    if (is("deepseek2")) GgufLatentReader(file_, architecture_.name, model_).read_scale();
    GgufFamilyReader(file_, architecture_.name, model_).read();
    if (const auto what = fault_of(config_); !what.empty()) {
      throw Error("config.unsound", text("'", fields_.file(), "': ", what), "Convert the model again");
    }
    if (const std::string what = fault_of(config_, model_.settings); !what.empty()) {
      throw Error("config.unsound", text("'", fields_.file(), "': ", what), "Convert the model again");
    }
    read_end_tokens();
    note_dropped_tokens();
    return std::move(model_);
  }

 private:
  bool is(std::string_view name) const { return architecture_.name == name; }
  bool has(std::string_view tensor) const { return file_.find(tensor) != nullptr; }
  std::string key(std::string_view name) const { return text(architecture_.name, ".", name); }

  Error unsupported(const std::string& what) const {
    return Error("config.unsupported", text("'", fields_.file(), "' requires ", what),
                 "See docs/models.md for the supported families and their features");
  }

  int rows_of(std::string_view name) const { return gguf_rows(file_, name); }

  /// An integer, or an array with the same integer for every layer.
  int layer_integer(std::string_view name, int largest) const {
    const std::string full = key(name);
    const GgufValue& value = fields_.at(full);
    if (!value.is_array) return fields_.integer(full, 1, largest);
    const auto first = value.count > 0 ? value.integer(0) : std::nullopt;
    for (std::uint64_t layer = 0; layer < value.count; ++layer) {
      if (value.integer(layer) != first) throw unsupported(text("layers of different sizes (", full, ")"));
    }
    if (!first || value.count != static_cast<std::uint64_t>(config_.layers) || *first < 1 || *first > largest) {
      throw fields_.bad(full, text("an integer of 1..", largest, ", or one for each of ", config_.layers, " layers"));
    }
    return static_cast<int>(*first);
  }

  /// Refuses keys of formulas that the architecture lacks.
  void refuse_other_formulas() const {
    if (fields_.integer(key("expert_count"), 0, 1 << 20, 0) > 0 && !gguf_has_experts(architecture_.name)) {
      throw unsupported("a mixture of experts");
    }
    for (const char* name : {"logit_scale", "embedding_scale", "residual_scale", "attention.scale",
                             "attn_logit_softcapping", "final_logit_softcapping"}) {
      const float factor = fields_.number(key(name), -1e30, 1e30, 0);
      if (factor != 0 && factor != 1 && !gguf_family_reads(architecture_.name, name)) {
        throw unsupported(text("a factor that its family lacks (", key(name), ")"));
      }
    }
    const char* pattern = "attention.sliding_window_pattern";
    if (fields_.has(key(pattern)) && !gguf_family_reads(architecture_.name, pattern)) {
      throw unsupported("a sliding window in only some layers");
    }
    const int version = fields_.integer("general.quantization_version", 0, 1 << 20, 2);
    if (version != 2) throw unsupported(text("version ", version, " of the quantized types, expected 2"));
  }

  void read_kinds() {
    config_ = architecture_.traits;
    if (config_.norm == NormKind::layer && config_.norm_affine != NormAffine::none) {
      const bool biased = has("blk.0.attn_norm.bias");
      config_.norm_affine = biased ? NormAffine::weight_and_bias : NormAffine::weight;
    }
    const bool parallel_norms = config_.order == BlockOrder::parallel_norms;
    const char* parallel = "use_parallel_residual";
    if (parallel_norms && !fields_.boolean(key(parallel), true)) config_.order = BlockOrder::pre_norm;
    if (is("stablelm") && fields_.boolean(key(parallel), false)) config_.order = BlockOrder::parallel;
    if (is("mpt")) {
      const float bias = fields_.number(key("attention.max_alibi_bias"), 0, 1e3, 0);
      const bool learned = has("position_embd.weight");
      config_.positions = bias > 0 ? Positions::alibi : learned ? Positions::learned : Positions::none;
      if (bias > 0) model_.settings.alibi_bias_max = bias;
    }
    if (is("granitehybrid") && !fields_.boolean(key("rope.scaling.finetuned"), true))
      config_.positions = Positions::none;
    // Only the tensors show which biases a model has.
    if (has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias")) {
      config_.attention_bias = has("blk.0.attn_output.bias") ? AttentionBias::all : AttentionBias::qkv;
    }
    config_.mlp_bias = has("blk.0.ffn_up.bias");
    config_.head_bias = has("output.bias");
  }

  void read_sizes() {
    const int blocks = fields_.integer(key("block_count"), 1, 1024);
    config_.layers = blocks;
    if (gguf_predicts(architecture_.name))
      config_.layers -= fields_.integer(key("nextn_predict_layers"), 0, blocks - 1, 0);
    config_.hidden = fields_.integer(key("embedding_length"), 1, 1 << 20);
    config_.heads = layer_integer("attention.head_count", 4096);
    config_.head_dim = config_.hidden / config_.heads;
    if (is_shaped_gemma(architecture_.name)) {
      GgufGemmaReader(file_, architecture_.name, model_).read_sizes();
      return read_vocabulary();
    }
    if (is("deepseek2")) {
      GgufLatentReader(file_, architecture_.name, model_).read_sizes();
    } else if (fields_.has(key("attention.key_length"))) {
      config_.head_dim = fields_.integer(key("attention.key_length"), 1, 1024);
      if (fields_.integer(key("attention.value_length"), 1, 1 << 20, config_.head_dim) != config_.head_dim) {
        throw unsupported("values of a length other than the keys'");
      }
    } else if (config_.hidden % config_.heads != 0) {
      throw Error("config.unsound",
                  text("'", fields_.file(), "': ", config_.heads, " heads do not divide a width of ", config_.hidden),
                  "Convert the model again");
    }
    if (gguf_recurs(architecture_.name)) {
      GgufMixerReader(fields_, architecture_.name, blocks, config_).read();
    } else if (!config_.is_latent() && fields_.has(key("attention.head_count_kv"))) {
      config_.kv_heads = layer_integer("attention.head_count_kv", config_.heads);
    } else if (is("mpt")) {  // the metadata do not state shared KV heads
      config_.kv_heads = std::max(0, (rows_of("blk.0.attn_qkv.weight") - config_.hidden) / 2 / config_.head_dim);
    } else if (!config_.is_latent()) {
      config_.kv_heads = config_.heads;
    }
    // Converters write 4 * hidden for models without a gate, independent of the tensors.
    const bool experts_alone = !fields_.has(key("feed_forward_length")) && gguf_has_experts(architecture_.name);
    const char* const ffn = experts_alone ? "expert_feed_forward_length" : "feed_forward_length";
    int first = 0;  // layer with an MLP
    while (first + 1 < config_.layers && !config_.has_mlp(first)) ++first;
    config_.ffn = config_.gated ? layer_integer(ffn, 1 << 22) : rows_of(text("blk.", first, ".ffn_up.weight"));
    read_vocabulary();
  }

  /// Reads vocab and qk_norm.
  void read_vocabulary() {
    config_.vocab = rows_of("token_embd.weight");
    if (const GgufValue* tokens = fields_.find("tokenizer.ggml.tokens")) {
      if (tokens->count != static_cast<std::uint64_t>(config_.vocab)) {
        throw Error("gguf.vocabulary-size",
                    text("'", fields_.file(), "': token_embd.weight has ", config_.vocab, " rows, and the tokenizer ",
                         tokens->count, " tokens"),
                    "Convert the model again, or get its file from another source");
      }
    }
    int first = 0;  // layer with attention
    while (first + 1 < config_.layers && !config_.has_attention(first)) ++first;
    if (const GgufTensor* norm = file_.find(text("blk.", first, ".attn_q_norm.weight"))) {
      const bool per_head = norm->shape == std::vector<std::int64_t>{config_.head_dim_of(first)};
      const bool rotated = architecture_.traits.qk_norm == QkNorm::rotated;
      config_.qk_norm = norm->shape.size() == 2 ? QkNorm::own_weights
                        : !per_head             ? QkNorm::whole
                        : rotated               ? QkNorm::rotated
                                                : QkNorm::per_head;
    } else {
      config_.qk_norm = QkNorm::none;
    }
  }

  void read_settings() {
    ModelSettings& settings = model_.settings;
    settings.context = fields_.integer(key("context_length"), 1, 1 << 24);
    const char* epsilon =
        config_.norm == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    if (is("nemotron_h")) epsilon = "attention.layer_norm_epsilon";
    settings.norm_epsilon = fields_.number(key(epsilon), 0, 1);
    settings.clip_qkv = fields_.number(key("attention.clamp_kqv"), 0, 1e6, 0);
    settings.clips_normed = is("olmoe") && settings.clip_qkv != 0;
    if (!is_shaped_gemma(architecture_.name))
      settings.window = fields_.integer(key("attention.sliding_window"), 0, 1 << 24, 0);
  }

  void read_rope() {
    ModelSettings& settings = model_.settings;
    RopeScaling& scaling = settings.rope_scaling;
    settings.rope_theta = fields_.number(key("rope.freq_base"), 1, 1e12, 10000);
    const int rotary = fields_.integer(key("rope.dimension_count"), 2, 1024, config_.head_dim);
    if (rotary != config_.head_dim) config_.rotary = rotary;
    const std::string_view kind = fields_.string(key("rope.scaling.type"), "linear");
    const float factor =
        fields_.number(key("rope.scaling.factor"), 0, 1e6, fields_.number(key("rope.scale_linear"), 0, 1e6, 1));
    if (kind == "yarn") return read_yarn(factor);
    if (kind != "none" && kind != "linear" && kind != "longrope") {
      throw unsupported(text("rope scaling of type ", quote(kind)));
    }
    if (has("rope_factors_long.weight") || kind == "longrope") return read_longrope();
    if (has("rope_freqs.weight")) {
      scaling.kind = RopeScaling::Kind::divisors;
      scaling.short_factors = divisors("rope_freqs.weight");
    } else if (kind == "linear" && factor != 0 && factor != 1) {
      scaling.kind = RopeScaling::Kind::linear;
      scaling.factor = factor;
    }
  }

  /// Absent betas are the usual ones.
  void read_yarn(float factor) {
    ModelSettings& settings = model_.settings;
    RopeScaling& scaling = settings.rope_scaling;
    if (factor < 1) throw fields_.bad(key("rope.scaling.factor"), "a number of at least 1");
    scaling.kind = RopeScaling::Kind::yarn;
    scaling.factor = factor;
    const int original = fields_.integer(key("rope.scaling.original_context_length"), 1, 1 << 24, settings.context);
    scaling.original_context = static_cast<float>(original);
    scaling.beta_fast = fields_.number(key("rope.scaling.yarn_beta_fast"), 1e-3, 1e6, 32);
    scaling.beta_slow = fields_.number(key("rope.scaling.yarn_beta_slow"), 1e-3, 1e6, 1);
    const double stretch = std::log(double{factor});
    const auto all = double{fields_.number(key("rope.scaling.yarn_log_multiplier"), 0, 1e3, 0)};
    const auto usual = static_cast<float>((0.1 * stretch + 1) / (0.1 * all * stretch + 1));
    scaling.attention_factor = fields_.number(key("rope.scaling.yarn_attn_factor"), 1e-3, 1e3, usual);
    const double whole = std::min(static_cast<double>(original) * double{factor}, double{1 << 24});
    settings.context = std::max(settings.context, static_cast<int>(whole));
  }

  void read_longrope() {
    RopeScaling& scaling = model_.settings.rope_scaling;
    const int context = model_.settings.context;
    scaling.kind = RopeScaling::Kind::longrope;
    scaling.short_factors = divisors("rope_factors_short.weight");
    scaling.long_factors = divisors("rope_factors_long.weight");
    const int original = fields_.integer(key("rope.scaling.original_context_length"), 2, 1 << 24, context);
    scaling.original_context = static_cast<float>(original);
    const double stretch = double(context) / original;
    const auto stretched = static_cast<float>(stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(original)));
    scaling.attention_factor = fields_.number(key("rope.scaling.attn_factor"), 1e-3, 1e3, stretched);
  }

  std::vector<float> divisors(std::string_view name) const { return gguf_divisors(file_, name, config_.rotary_dim()); }

  /// The ids in the metadata, then those of the vocabulary.
  void read_end_tokens() {
    for (const char* name : {"eos", "eot", "eom"}) {
      const std::string key = text("tokenizer.ggml.", name, "_token_id");
      if (const auto end = fields_.token(key, config_.vocab)) add_end_token(model_, *end, key);
    }
    const char* type_key = "tokenizer.ggml.token_type";
    if (!fields_.has("tokenizer.ggml.tokens") || !fields_.has(type_key)) return;
    const auto tokens = fields_.strings("tokenizer.ggml.tokens");
    const auto types = fields_.integers(type_key, tokens.size());
    TokenizerEnds ends;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      constexpr std::int64_t control = 3;
      if (types[id] == control) ends.tokens.push_back({static_cast<std::int64_t>(id), std::string{tokens[id]}, true});
    }
    add_tokenizer_ends(model_, std::move(ends));
  }

  /// Reports ids outside the vocabulary, which mean no token.
  void note_dropped_tokens() {
    for (const auto& [id, value] : fields_.entries()) {
      const auto found = value.is_array ? std::nullopt : value.number();
      if (!found || !id.starts_with("tokenizer.ggml.") || !id.ends_with("_token_id")) continue;
      if (*found >= 0 && *found < config_.vocab) continue;
      model_.notes.push_back(text("'", fields_.file(), "': key ", quote(id), " is ", value.described(),
                                  ", outside the vocabulary 0..", config_.vocab - 1, ": dropped"));
    }
  }

  const GgufFile& file_;
  const GgufFields& fields_;
  const GgufArchitecture& architecture_;
  ModelDescription model_;
  ModelConfig& config_ = model_.config;
};

}  // namespace detail

/// Reads the model's description from the metadata, and missing properties from the tensors.
inline ModelDescription read_gguf_model(const GgufFile& file) { return detail::GgufModelReader(file).read(); }

}}
