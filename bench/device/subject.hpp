// The measured models: published shapes with random weights in several formats, or files.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/device/measure.hpp"
#include "slm/config/known_models.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/families/llama.hpp"
#include "slm/io/families/olmo.hpp"
#include "slm/io/path_name.hpp"

namespace slm::bench {

struct Subject {
  std::string model, format;
  ModelConfig shape;
  const Family* family = &families::llama;
  bool tied = false;
  std::filesystem::path file = {};  // empty: random weights

  bool int4() const { return format != "bf16"; }

  /// Multiplications of the layers' matrices per token, without attention and head.
  double layer_products() const {
    const double q = double(shape.heads) * shape.head_dim, kv = double(shape.kv_heads) * shape.head_dim;
    return double(shape.layers) * shape.hidden * (2 * q + 2 * kv + 3.0 * shape.ffn);
  }

  /// Approximate bytes of the weights.
  double bytes() const {
    if (std::filesystem::is_regular_file(file)) return static_cast<double>(std::filesystem::file_size(file));
    return layer_products() * (int4() ? 0.53 : 2.0) + (tied ? 2.0 : 4.0) * shape.vocab * shape.hidden;
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
                     .tied = checkpoint.settings().tied_embeddings,
                     .file = file});
    }
  }
  return all;
}

/// The models that the options select, each in the formats of `offered`.
inline std::vector<Subject> subjects(const MeasureOptions& options, const std::vector<std::string>& offered,
                                     bool tiny) {
  if (!options.files.empty()) return subjects_of_files(options);
  const ModelConfig tiny_shape{
      .layers = 2, .hidden = 256, .ffn = 384, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 512};
  std::vector<Subject> models = {
      {"AMD-Llama-135M", "", configs::AmdLlama_135M::value},
      {"AMD-OLMo-1B", "", configs::AmdOlmo_1B::value, &families::olmo, configs::AmdOlmo_1B::tied},
      {"Llama-3.2-1B", "", configs::Llama32_1B::value, &families::llama, configs::Llama32_1B::tied},
      {"CodeLlama-7B", "", configs::CodeLlama_7B::value}};
  if (tiny) models = {{"tiny", "", tiny_shape}};
  const auto wanted = [](const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<Subject> all;
  for (Subject& subject : models) {
    if (!tiny && !wanted(options.models, subject.model)) continue;
    for (const std::string& format : offered) {
      if (!wanted(options.formats, format)) continue;
      subject.format = format;
      all.push_back(subject);
    }
  }
  return all;
}

}  // namespace slm::bench
