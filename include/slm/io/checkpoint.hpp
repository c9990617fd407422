// Checkpoint: a model's files (Hugging Face folder or GGUF) as a description and memory-mapped tensors.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/config/quantization.hpp"
#include "slm/core/error.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/core/os/path.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/model_files.hpp"
#include "slm/io/name_prefixes.hpp"
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
  explicit Checkpoint(const std::filesystem::path& model) : folder_(model) {
    const detail::BusErrorsTaken taken;
    files_ = detail::open_model(model);
    model_ = std::move(files_->content.model);
    quantization_ = std::move(files_->content.quantization);
    tensors_ = std::move(files_->content.tensors);
    look_at_tensors();
    files_->check_read(tensors_, family(), config(), names_);
    check_unchanged();
  }

  /// A model in memory. The caller must keep the bytes of its tensors alive.
  Checkpoint(const std::string& name, ModelDescription model, QuantizationSettings stated, std::vector<Tensor> given)
      : folder_(path_of(name)), model_(std::move(model)), quantization_(std::move(stated)), given_(std::move(given)) {
    for (const Tensor& tensor : given_) tensors_.emplace(tensor.name, &tensor);
    look_at_tensors();
  }

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
  const Tensor& tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
    const Tensor* found = find(name);
    if (!found) throw missing(name, shape);
    const Tensor& tensor = *found;
    if (tensor.shape != shape) {
      throw Error("checkpoint.wrong-shape",
                  text("'", folder_.string(), "': tensor '", name, "' is ", shape_text(tensor.shape), ", ",
                       description(), " makes it ", shape_text(shape)),
                  gguf() ? convert_again : "Check that config.json belongs to these weights");
    }
    if (!is_floating_point(tensor.dtype) && !(is_blocked(tensor.dtype) && shape.size() == 2)) {
      throw Error("checkpoint.wrong-dtype",
                  text("'", folder_.string(), "': tensor '", name, "' is ", name_of(tensor.dtype),
                       ", expected F32, F16 or BF16"),
                  "Export the checkpoint with floating-point weights");
    }
    return tensor;
  }

  /// The Error for a missing tensor.
  Error missing(std::string_view name, const std::vector<std::int64_t>& shape) const {
    if (const Family* other = family_of_names()) {
      return Error("checkpoint.other-family",
                   text("'", folder_.string(), "': config.json says '", family().model_type,
                        "', but the tensors have names of '", other->model_type, "' and lack '", name, "'"),
                   "Put the config.json and the weights of one model into the folder");
    }
    return Error(
        "checkpoint.missing-tensor", text("'", folder_.string(), "' has no tensor '", name, "' ", shape_text(shape)),
        gguf() ? convert_again : "Check that all shards are present and that config.json belongs to these weights");
  }

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
  const Family* family_of_names() const {
    constexpr Role roles[] = {Role::embedding, Role::attention_out, Role::qkv, Role::gate_up};
    if (config().mixture.experts != 0) return nullptr;
    const auto names_of = [&](const Family* family) {
      return TensorNames(config(), settings(), family->names, find_prefixes(tensors_, family->names));
    };
    const auto fits = [&](const TensorNames& names) {
      return std::all_of(std::begin(roles), std::end(roles), [&](Role role) {
        const auto weights = names.weights(role);
        return weights.empty() || stores(tensors_, weights.front().module());
      });
    };
    const TensorNames own = names_of(model_.family);
    if (fits(own)) return nullptr;
    // Families whose names are among those of the stated one do not count as others.
    const auto adds_names = [&](const TensorNames& names) {
      return std::any_of(std::begin(roles), std::end(roles), [&](Role role) {
        const auto stated = own.weights(role), others = names.weights(role);
        if (others.empty()) return false;
        const std::string module = others.front().module();
        return std::none_of(stated.begin(), stated.end(), [&](const auto& name) { return name.module() == module; });
      });
    };
    const auto known = files_ ? files_->families() : std::span<const Family* const>();
    const auto other = std::find_if(known.begin(), known.end(), [&](const Family* family) {
      const TensorNames names = names_of(family);
      return adds_names(names) && fits(names);
    });
    return other == known.end() ? nullptr : *other;
  }

  /// Determines from the tensors: name prefixes, the head's matrix, and whether there are extra layers.
  void look_at_tensors() {
    const TensorTable& table = family().names;
    ModelSettings& settings = model_.settings;
    const NamePrefixes prefixes = find_prefixes(tensors_, table);
    const std::string embedding = text(prefixes.model, table.embedding), head = text(prefixes.head, table.head);
    const bool has_head = stores(tensors_, head), has_embedding = stores(tensors_, embedding);
    if (!model_.says_tied) settings.tied_embeddings = !has_head;
    settings.headless = !settings.tied_embeddings && !has_head && has_embedding;
    if (settings.headless) {
      model_.config.head_bias = false;
      model_.notes.push_back(text("the head '", head, "' is missing: the model computes only hidden states"));
    }
    if (settings.tied_embeddings && has_head && has_embedding && !is_copy(head, embedding)) {
      settings.tied_embeddings = false;
      model_.notes.push_back(text("config.json ties the head to the embedding, but the weights hold another '", head,
                                  "': it is used as the head"));
    }
    names_ = TensorNames(config(), settings, table, prefixes, settings.tied_embeddings && has_head && !has_embedding);
    stacked_.split(tensors_, config(), names_, folder_.string());
    recognise_blocks();
    note_surplus_layers();
  }

  bool is_copy(const std::string& module, const std::string& original) const {
    const Tensor *copy = find(module + ".weight"), *tensor = find(original + ".weight");
    return copy && tensor && copy->dtype == tensor->dtype && copy->shape == tensor->shape &&
           copy->size_bytes == tensor->size_bytes && std::memcmp(copy->bytes, tensor->bytes, copy->size_bytes) == 0;
  }

  /// The head, and an embedding used as the head, may be Q8_0 blocks, which safetensors stores as rows of bytes.
  void recognise_blocks() {
    constexpr DType type = DType::q8_0;
    for (const Role role : {Role::embedding, Role::head}) {
      for (const TensorName& name : names_.weights(role)) {
        const Tensor* stored = find(name.name);
        if (!stored || stored->dtype != DType::u8 || name.shape.at(1) % values_of_block(type) != 0) continue;
        const std::int64_t blocks = name.shape.at(1) / values_of_block(type);
        const auto row_bytes = blocks * static_cast<std::int64_t>(bytes_of(type));
        if (stored->shape != std::vector{name.shape.at(0), row_bytes}) continue;
        tensors_[name.name] =
            &(in_blocks_[name.name] = {name.name, type, name.shape, stored->bytes, stored->size_bytes});
      }
    }
  }

  void note_surplus_layers() {
    const std::string stem = names_.layers();
    int stored = 0;
    for (auto at = tensors_.lower_bound(stem); at != tensors_.end() && at->first.starts_with(stem); ++at) {
      int layer = -1;
      const char* const end = at->first.data() + at->first.size();
      const auto number = std::from_chars(at->first.data() + stem.size(), end, layer);
      if (number.ec == std::errc{} && number.ptr != end && *number.ptr == '.' && layer < 1 << 20) {
        stored = std::max(stored, layer + 1);
      }
    }
    if (stored > config().layers) {
      model_.notes.push_back(text("the weights hold ", stored, " layers and config.json states ", config().layers,
                                  ": the other layers are not read"));
    }
  }

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
