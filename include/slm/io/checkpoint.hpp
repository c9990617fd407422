// Checkpoint: a model's files (Hugging Face folder or GGUF) as a description and memory-mapped tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/config/quantization.hpp"
#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/model_files.hpp"
#include "slm/io/open_model.hpp"
#include "slm/io/stacked_tensors.hpp"
#include "slm/io/stated_quantization.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/lm/model_info.hpp"

namespace slm { inline namespace v0_1 {

/// The files of a model. Public members: one for each kind of content that loaders read.
class Checkpoint {
 public:
  /// Opens a GGUF file (the first shard of a split one), a folder with one GGUF model, or a Hugging Face folder:
  /// config.json and model.safetensors, or all shards in model.safetensors.index.json.
  explicit Checkpoint(const std::filesystem::path& model);

  /// A model in memory. The caller must keep the bytes of its tensors alive.
  Checkpoint(const std::string& name, ModelDescription model, QuantizationSettings stated, std::vector<Tensor> given);

  const std::filesystem::path& folder() const { return folder_; }
  const Family& family() const { return *model_.family; }
  const ModelConfig& config() const { return model_.config; }
  const ModelSettings& settings() const { return model_.settings; }
  const StatedQuantization& quantization() const { return quantization_; }
  const TensorMap& tensors() const { return tensors_; }

  /// The tensors that the model reads.
  const TensorNames& names() const { return names_; }

  /// The source of each of settings().end_tokens, in words.
  const std::vector<std::string>& end_sources() const { return model_.end_sources; }

  /// Deviations from the files' statements, as sentences; usually empty.
  const std::vector<std::string>& notes() const { return model_.notes; }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  /// The tensor of this name, of any type and shape; null if there is none.
  const Tensor* find(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  }

  /// A float or block-format tensor of exactly this shape. Throws Error otherwise.
  const Tensor& tensor(std::string_view name, const std::vector<std::int64_t>& shape) const;

  /// The Error for a missing tensor.
  Error missing(std::string_view name, const std::vector<std::int64_t>& shape) const;

  /// Throws Error if there is no head.
  void check_head() const {
    if (settings().headless) throw no_head(folder_.string());
  }

  /// Throws io.file-changed if a file was truncated since it was opened, or could not be read. Call it after reading
  /// tensors and before using results.
  void check_unchanged() const {
    if (files_) files_->check_unchanged();
  }

  /// The GGUF file, or null.
  const GgufFile* gguf() const { return files_ ? files_->gguf() : nullptr; }

 private:
  static constexpr std::string_view convert_again = "Convert the model again, or take its file from another source";

  std::string_view description() const { return gguf() ? "the metadata" : "config.json"; }

  /// The family that the tensor names belong to, if they lack those of this model's family; null: none.
  const Family* family_of_names() const;

  /// Determines from the tensors: name prefixes, the head's matrix, and whether there are extra layers.
  void look_at_tensors();

  bool is_copy(const std::string& module, const std::string& original) const;

  /// The head, and an embedding used as the head, may be Q8_0 blocks, which safetensors stores as rows of bytes.
  void recognise_blocks();

  void note_surplus_layers();

  std::filesystem::path folder_;
  ModelDescription model_;
  StatedQuantization quantization_;
  std::unique_ptr<detail::ModelFiles> files_;  // null: the model is in memory
  std::vector<Tensor> given_;
  std::map<std::string, Tensor> in_blocks_;  // tensors whose bytes are blocks
  detail::StackedTensors stacked_;
  TensorMap tensors_;
  TensorNames names_{ModelConfig{}};
};

/// A function that calls read_vocabulary() once and caches the result. Thread-safe.
inline std::function<std::vector<std::string>()> vocabulary_reader(const std::filesystem::path& folder, int vocab) {
  struct Kept {
    std::mutex mutex;
    std::optional<std::vector<std::string>> pieces;
  };
  return [kept = std::make_shared<Kept>(), folder, vocab] {
    const std::lock_guard lock(kept->mutex);
    if (!kept->pieces) kept->pieces = read_vocabulary(folder, vocab);
    return *kept->pieces;
  };
}

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_io_checkpoint_hpp)
}}}

#if SLM_COMPILES
#include "slm/io/checkpoint_functions.hpp"
#endif
