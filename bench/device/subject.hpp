// The measured models: published shapes with random weights in several formats, or files.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/device/measure.hpp"
#include "bench/device/shapes.hpp"
#include "slm/config/known_models.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/families/lfm2.hpp"
#include "slm/io/families/llama.hpp"
#include "slm/io/families/mixtures.hpp"
#include "slm/io/families/olmo.hpp"
#include "slm/io/families/qwen3_5.hpp"
#include "slm/io/path_name.hpp"

namespace slm::bench {

struct Subject {
  std::string model, format;
  ModelConfig shape;
  const Family* family = &families::llama;
  ModelSettings settings = {};
  std::filesystem::path file = {};  // empty: random weights

  bool int4() const { return format != "bf16"; }
  /// Whether every layer is attention and an MLP.
  bool dense() const { return shape.is_plain() && shape.mixture.experts == 0; }

  /// Multiplications of the layers' matrices per token, without attention and head.
  double layer_products() const { return products(shape.mixture.chosen); }

  /// Approximate bytes of the weights.
  double bytes() const {
    if (std::filesystem::is_regular_file(file)) return static_cast<double>(std::filesystem::file_size(file));
    const double tables = (settings.tied_embeddings ? 2.0 : 4.0) * shape.vocab * shape.hidden;
    return products(shape.mixture.experts) * (int4() ? 0.53 : 2.0) + tables;
  }

 private:
  /// Elements of the layers' matrices, with this many experts of each mixture.
  double products(int experts) const {
    double width = 0;  // outputs of the matrices that read the residual stream, and inputs of those that add to it
    const auto add_mlp = [&](double ffn) { width += (shape.gated ? 3 : 2) * ffn; };
    for (int layer = 0; layer < shape.layers; ++layer) {
      const double q = double(shape.heads) * shape.head_dim_of(layer);
      const double kv = double(shape.kv_heads_of(layer)) * shape.head_dim_of(layer);
      if (shape.has_attention(layer)) width += (shape.attention_gate ? 3 : 2) * q + 2 * kv;
      if (shape.has_mixer(layer)) width += double(shape.mixer.projected() + shape.mixer.inner());
      if (!shape.has_mlp(layer)) continue;
      const bool mixes = shape.mixture.experts != 0 && !settings.is_dense(layer);
      if (!mixes || shape.mixture.beside_mlp) add_mlp(shape.ffn_of(layer));
      if (!mixes) continue;
      add_mlp(double(experts) * shape.mixture.ffn + shape.mixture.shared_ffn);
      width += shape.mixture.experts + (shape.mixture.shared_gate ? 1 : 0);
    }
    return width * shape.hidden;
  }
};

/// Files and folders as stored, or as w4a8 if that format is selected.
inline std::vector<Subject> subjects_of_files(const MeasureOptions& options) {
  std::vector<Subject> all;
  for (const std::filesystem::path file : options.files) {
    const Checkpoint checkpoint(file);
    const std::vector<std::string> formats =
        options.formats.empty() ? std::vector<std::string>{"stored"} : options.formats;
    for (const std::string& format : formats) {
      all.push_back({.model = slm::detail::name_of_path(file),
                     .format = format == "w4a8" ? format : "stored",
                     .shape = checkpoint.config(),
                     .family = &checkpoint.family(),
                     .settings = checkpoint.settings(),
                     .file = file});
    }
  }
  return all;
}

/// The models that the options select, each in the formats of `offered`. Hybrids and mixtures are selected by name
/// only.
inline std::vector<Subject> subjects(const MeasureOptions& options, const std::vector<std::string>& offered,
                                     bool tiny) {
  if (!options.files.empty()) return subjects_of_files(options);
  const ModelConfig tiny_shape{
      .layers = 2, .hidden = 256, .ffn = 384, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 512};
  const ModelSettings tied{.tied_embeddings = true};
  std::vector<Subject> models = {{"AMD-Llama-135M", "", configs::AmdLlama_135M::value},
                                 {"AMD-OLMo-1B", "", configs::AmdOlmo_1B::value, &families::olmo, tied},
                                 {"Llama-3.2-1B", "", configs::Llama32_1B::value, &families::llama, tied},
                                 {"CodeLlama-7B", "", configs::CodeLlama_7B::value},
                                 {"LFM2-1.2B", "", lfm2_1_2b(), &families::lfm2, tied},
                                 {"Qwen3.5-0.8B", "", qwen3_5_0_8b, &families::qwen3_5, tied},
                                 {"OLMoE-1B-7B", "", olmoe_1b_7b, &families::olmoe}};
  if (tiny) models = {{"tiny", "", tiny_shape}};
  const auto wanted = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<Subject> all;
  for (Subject& subject : models) {
    const bool selected = options.models.empty() ? subject.dense() : wanted(options.models, subject.model);
    if (!tiny && !selected) continue;
    for (const std::string& format : offered) {
      if (!options.formats.empty() && !wanted(options.formats, format)) continue;
      subject.format = format;
      all.push_back(subject);
    }
  }
  return all;
}

}  // namespace slm::bench
