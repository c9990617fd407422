// The functions of Checkpoint.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/core/os/path.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/name_prefixes.hpp"
#include "slm/io/open_model_functions.hpp"
#include "slm/io/stacked_tensors.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 {

SLM_CONSTRUCTOR Checkpoint::Checkpoint(const std::filesystem::path& model) : folder_(model) {
  const detail::BusErrorsTaken taken;
  files_ = detail::open_model(model);
  model_ = std::move(files_->content.model);
  quantization_ = std::move(files_->content.quantization);
  tensors_ = std::move(files_->content.tensors);
  look_at_tensors();
  files_->check_read(tensors_, family(), config(), names_);
  check_unchanged();
}

SLM_CONSTRUCTOR Checkpoint::Checkpoint(const std::string& name, ModelDescription model, QuantizationSettings stated,
                                       std::vector<Tensor> given)
    : folder_(path_of(name)), model_(std::move(model)), quantization_(std::move(stated)), given_(std::move(given)) {
  for (const Tensor& tensor : given_) tensors_.emplace(tensor.name, &tensor);
  look_at_tensors();
}

SLM_INLINE const Tensor& Checkpoint::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  const Tensor* found = find(name);
  if (!found) throw missing(name, shape);
  const Tensor& tensor = *found;
  if (tensor.shape != shape) {
    throw Error("checkpoint.wrong-shape",
                text("'", folder_.string(), "': tensor '", name, "' is ", shape_text(tensor.shape), ", ", description(),
                     " makes it ", shape_text(shape)),
                gguf() ? convert_again : "Check that config.json belongs to these weights");
  }
  if (!is_floating_point(tensor.dtype) && !(is_blocked(tensor.dtype) && shape.size() == 2)) {
    throw Error(
        "checkpoint.wrong-dtype",
        text("'", folder_.string(), "': tensor '", name, "' is ", name_of(tensor.dtype), ", expected F32, F16 or BF16"),
        "Export the checkpoint with floating-point weights");
  }
  return tensor;
}

SLM_INLINE Error Checkpoint::missing(std::string_view name, const std::vector<std::int64_t>& shape) const {
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

inline const Family* Checkpoint::family_of_names() const {
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

inline void Checkpoint::look_at_tensors() {
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

inline bool Checkpoint::is_copy(const std::string& module, const std::string& original) const {
  const Tensor *copy = find(module + ".weight"), *tensor = find(original + ".weight");
  return copy && tensor && copy->dtype == tensor->dtype && copy->shape == tensor->shape &&
         copy->size_bytes == tensor->size_bytes && std::memcmp(copy->bytes, tensor->bytes, copy->size_bytes) == 0;
}

inline void Checkpoint::recognise_blocks() {
  constexpr DType type = DType::q8_0;
  for (const Role role : {Role::embedding, Role::head}) {
    for (const TensorName& name : names_.weights(role)) {
      const Tensor* stored = find(name.name);
      if (!stored || stored->dtype != DType::u8 || name.shape.at(1) % values_of_block(type) != 0) continue;
      const std::int64_t blocks = name.shape.at(1) / values_of_block(type);
      const auto row_bytes = blocks * static_cast<std::int64_t>(bytes_of(type));
      if (stored->shape != std::vector{name.shape.at(0), row_bytes}) continue;
      tensors_[name.name] = &(in_blocks_[name.name] = {name.name, type, name.shape, stored->bytes, stored->size_bytes});
    }
  }
}

inline void Checkpoint::note_surplus_layers() {
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

}}
