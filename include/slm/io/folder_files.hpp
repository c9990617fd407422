// FolderFiles: a Hugging Face folder as the files of a model; its vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/foreign_folder.hpp"
#include "slm/io/json.hpp"
#include "slm/io/model_files.hpp"
#include "slm/io/quantization_json.hpp"
#include "slm/io/safetensors.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// config.json, and model.safetensors or all shards in model.safetensors.index.json.
class FolderFiles final : public ModelFiles {
 public:
  explicit FolderFiles(const std::filesystem::path& folder) : folder_(folder) {
    refuse_foreign_folder(folder_);
    if (!file_exists(folder_ / "config.json")) {
      throw Error("checkpoint.no-config", text("'", folder_.string(), "' has no config.json"),
                  "Name the folder that holds config.json, model.safetensors and tokenizer.json, or a GGUF file");
    }
    content.model = read_model_description(folder_);
    content.quantization = read_quantization(folder_);
    if (content.quantization.quantized_activations) {
      content.model.notes.push_back(
          text("'", content.quantization.file, "' states 8-bit activations: only the weights are quantized"));
    }
    if (const auto single = folder_ / "model.safetensors"; file_exists(single)) {
      files_.emplace("model.safetensors", Safetensors(single));
      for (const auto& [name, tensor] : files_.begin()->second.tensors) content.tensors.emplace(name, &tensor);
    } else {
      open_shards(folder_ / "model.safetensors.index.json");
    }
  }

  void check_unchanged() const override {
    for (const auto& [name, file] : files_) file.file.check_unchanged();
  }

  std::span<const Family* const> families() const override { return known_families; }

 private:
  void open_shards(const std::filesystem::path& index) {
    if (!file_exists(index)) {
      throw Error(
          "checkpoint.no-weights",
          text("'", folder_.string(), "': expected model.safetensors or model.safetensors.index.json, found neither"),
          "Convert pytorch_model.bin with python3 examples/convert_bin.py FOLDER, or use a repository with "
          "safetensors");
    }
    const OwnedJson json = read_json_object(index);
    const JsonFields map = JsonFields(json, index.string()).object("weight_map");
    for (const auto& [name, shard] : json.at("weight_map").items()) {
      const auto* file = shard.get_ptr<const std::string*>();
      // A shard must be in the folder of its index: paths to other folders are refused.
      if (!file || file->empty() || path_of(*file).filename() != path_of(*file)) {
        throw map.bad(name.c_str(), "a file name in the same folder", shard);
      }
      auto opened = files_.find(*file);
      if (opened == files_.end()) opened = files_.emplace(*file, Safetensors(folder_ / path_of(*file))).first;
      const auto tensor = opened->second.tensors.find(name);
      if (tensor == opened->second.tensors.end()) {
        throw Error("checkpoint.missing-tensor",
                    text("'", index.string(), "' places tensor ", quote(name), " in ", quote(*file),
                         ", which does not have it"),
                    "Download the shard and the index again");
      }
      content.tensors.emplace(name, &tensor->second);
    }
  }

  std::filesystem::path folder_;
  std::map<std::string, Safetensors> files_;
};

/// The vocabulary of tokenizer.json; empty without that file.
inline std::vector<std::string> folder_vocabulary(const std::filesystem::path& folder, int vocab) {
  const auto path = folder / "tokenizer.json";
  if (!file_exists(path)) return {};
  const OwnedJson json = read_json_object(path);
  std::vector<std::string> pieces;
  const auto add = [&](const std::string& piece, const Json& id) {
    if (!is_index(id, static_cast<std::uint64_t>(vocab))) {
      throw Error("tokenizer.bad-id",
                  text("'", path.string(), "' gives the token ", quote(piece), " the id ", quote_json(id),
                       ", expected 0..", vocab - 1),
                  "Check that tokenizer.json and config.json are of one model, or download them again");
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

}}}
