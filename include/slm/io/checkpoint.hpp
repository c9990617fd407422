// Checkpoint: a Hugging Face model folder as a description and memory-mapped tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/quantization.hpp"
#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/foreign_folder.hpp"
#include "slm/io/quantization_json.hpp"
#include "slm/io/safetensors.hpp"

namespace slm {

class Checkpoint {
 public:
  /// Opens config.json and either model.safetensors or every shard of model.safetensors.index.json.
  explicit Checkpoint(const std::filesystem::path& folder)
      : folder_(folder), model_(description_of(folder)), quantization_(read_quantization(folder)) {
    if (const auto single = folder / "model.safetensors"; std::filesystem::exists(single)) {
      files_.emplace("model.safetensors", Safetensors(single));
      for (const auto& [name, tensor] : files_.begin()->second.tensors) tensors_.emplace(name, &tensor);
    } else {
      open_shards(folder / "model.safetensors.index.json");
    }
    if (!model_.says_tied) model_.settings.tied_embeddings = !has("lm_head.weight");
  }

  /// A model that no folder holds. The caller keeps the bytes of its tensors.
  Checkpoint(const std::string& name, ModelDescription model, QuantizationSettings quantization,
             std::vector<Tensor> tensors)
      : folder_(name), model_(std::move(model)), quantization_(std::move(quantization)), given_(std::move(tensors)) {
    for (const Tensor& tensor : given_) tensors_.emplace(tensor.name, &tensor);
  }

  const std::filesystem::path& folder() const { return folder_; }
  const Family& family() const { return *model_.family; }
  const ModelConfig& config() const { return model_.config; }
  const ModelSettings& settings() const { return model_.settings; }
  const QuantizationSettings& quantization() const { return quantization_; }
  const std::map<std::string, const Tensor*, std::less<>>& tensors() const { return tensors_; }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  /// The tensor of this name whatever its type and shape; null when there is none.
  const Tensor* find(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  }

  /// A floating-point tensor of exactly this shape.
  const Tensor& tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      if (const Family* other = family_of_names()) {
        throw Error("checkpoint.other-family",
                    text("'", folder_.string(), "': config.json says '", family().model_type,
                         "', but the tensors have the names of '", other->model_type, "' and there is no '", name, "'"),
                    "Put the config.json and the weights of one model into the folder");
      }
      throw Error("checkpoint.missing-tensor",
                  text("'", folder_.string(), "' has no tensor '", name, "' ", shape_text(shape)),
                  "Check that every shard is there and that config.json belongs to these weights");
    }
    const Tensor& tensor = *found->second;
    if (tensor.shape != shape) {
      throw Error("checkpoint.wrong-shape",
                  text("'", folder_.string(), "': tensor '", name, "' is ", shape_text(tensor.shape),
                       ", config.json makes it ", shape_text(shape)),
                  "Check that config.json belongs to these weights");
    }
    if (tensor.dtype != DType::f32 && tensor.dtype != DType::f16 && tensor.dtype != DType::bf16) {
      throw Error("checkpoint.wrong-dtype",
                  text("'", folder_.string(), "': tensor '", name, "' is ", name_of(tensor.dtype),
                       ", expected F32, F16 or BF16"),
                  "Export the checkpoint with floating-point weights");
    }
    return tensor;
  }

 private:
  /// The family whose names the tensors have, where this model's own has none of them; null: none.
  const Family* family_of_names() const {
    const auto fits = [&](const Family& family) {
      const TensorTable& table = family.names;
      const auto there = [&](std::string_view prefix) {
        const std::size_t place = table.layer.find("{}");
        const auto in_layer = [&](std::string_view module) {
          return has(text(prefix, table.layer.substr(0, place), 0, table.layer.substr(place + 2), module, ".weight"));
        };
        return has(text(prefix, table.embedding, ".weight")) && in_layer(table.attention_out) &&
               in_layer(table.qkv[0]) && in_layer(table.up[0]);
      };
      return there("") || there(table.optional_prefix);
    };
    if (fits(family())) return nullptr;
    const auto other = std::find_if(std::begin(known_families), std::end(known_families),
                                    [&](const Family* candidate) { return fits(*candidate); });
    return other == std::end(known_families) ? nullptr : *other;
  }

  static ModelDescription description_of(const std::filesystem::path& folder) {
    if (!std::filesystem::is_directory(folder)) {
      throw Error("checkpoint.no-folder", text("'", folder.string(), "' is not a folder"),
                  "Name a Hugging Face model folder: config.json, model.safetensors and tokenizer.json");
    }
    refuse_foreign_folder(folder);
    return read_model_description(folder);
  }

  void open_shards(const std::filesystem::path& index) {
    if (!std::filesystem::exists(index)) {
      throw Error(
          "checkpoint.no-weights",
          text("'", folder_.string(), "' holds neither model.safetensors nor model.safetensors.index.json"),
          "Convert pytorch_model.bin with python3 examples/convert_bin.py FOLDER, or take a repository that has "
          "safetensors");
    }
    const Json json = read_json_object(index);
    const JsonFields map = JsonFields(json, index.string()).object("weight_map");
    for (const auto& [name, shard] : json.at("weight_map").items()) {
      const auto* file = shard.get_ptr<const std::string*>();
      // A shard lies beside its index: a path that leads elsewhere is not followed.
      if (!file || file->empty() || std::filesystem::path(*file).filename() != std::filesystem::path(*file)) {
        throw map.bad(name.c_str(), "the name of a file in the same folder", shard);
      }
      auto opened = files_.find(*file);
      if (opened == files_.end()) opened = files_.emplace(*file, Safetensors(folder_ / *file)).first;
      const auto tensor = opened->second.tensors.find(name);
      if (tensor == opened->second.tensors.end()) {
        throw Error("checkpoint.missing-tensor",
                    text("'", index.string(), "' places tensor ", quote(name), " in ", quote(*file),
                         ", which does not have it"),
                    "Download the shard and the index again");
      }
      tensors_.emplace(name, &tensor->second);
    }
  }

  std::filesystem::path folder_;
  ModelDescription model_;
  QuantizationSettings quantization_;
  std::map<std::string, Safetensors> files_;
  std::vector<Tensor> given_;
  std::map<std::string, const Tensor*, std::less<>> tensors_;
};

/// id -> token text as tokenizer.json has it; empty when the folder has no such file. Decoders compare these to see
/// whether two models speak the same vocabulary.
inline std::vector<std::string> read_vocabulary(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  if (!std::filesystem::exists(path)) return {};
  const Json json = read_json_object(path);
  std::vector<std::string> pieces;
  const auto add = [&](const std::string& piece, const Json& id) {
    if (!is_index(id, 1u << 24)) {
      throw Error("tokenizer.bad-id", text("'", path.string(), "' gives the token ", quote(piece), " no sound id"),
                  "Download the file again");
    }
    const auto index = id.get<std::size_t>();
    if (index >= pieces.size()) pieces.resize(index + 1);
    pieces[index] = piece;
  };
  const JsonFields fields(json, path.string());
  const JsonFields model = fields.object("model");
  if (!model.at("vocab").is_object()) throw model.bad("vocab", "an object of tokens and ids", model.at("vocab"));
  for (const auto& [piece, id] : model.at("vocab").items()) add(piece, id);
  if (fields.has("added_tokens")) {
    if (!fields.at("added_tokens").is_array()) throw fields.bad("added_tokens", "a list", fields.at("added_tokens"));
    for (const Json& token : fields.at("added_tokens")) {
      if (!token.is_object()) throw fields.bad("added_tokens", "a list of objects", token);
      const JsonFields added(token, path.string());
      add(added.string("content", ""), added.at("id"));
    }
  }
  return pieces;
}

}  // namespace slm
