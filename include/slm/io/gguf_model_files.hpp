// GgufModelFiles: a GGUF file as the files of a model; its vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/gguf_mixers.hpp"
#include "slm/io/gguf_model.hpp"
#include "slm/io/gguf_tensors.hpp"
#include "slm/io/model_files.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class GgufModelFiles final : public ModelFiles {
 public:
  explicit GgufModelFiles(const std::filesystem::path& path) : file_(path) {
    content.model = read_gguf_model(file_);
    auto [tensors, copies] = GgufTensors(file_, content.model.config);
    tensors_ = std::move(tensors);
    copies_ = std::move(copies);
    for (const Tensor& tensor : tensors_) content.tensors.emplace(tensor.name, &tensor);
  }

  void check_unchanged() const override { file_.check_unchanged(); }

  const GgufFile* gguf() const override { return &file_; }

  /// Rejects tensors that the model does not use, since ignoring them would silently change results.
  void check_read(const TensorMap& tensors, const Family& family, const ModelConfig& config,
                  const TensorNames& names) const override {
    std::set<std::string, std::less<>> read{"rope_freqs.weight", "rope_factors_long.weight",
                                            "rope_factors_short.weight"};
    names.for_each([&](Role, int, const auto& weights, const auto& biases) {
      for (const auto* list : {&weights, &biases}) {
        for (const TensorName& name : *list) read.insert(name.name);
      }
    });
    for (const auto& [name, tensor] : tensors) {
      if (read.contains(name) || is_left_out(name, family.architecture, config)) continue;
      throw Error("gguf.unknown-tensor",
                  text("'", file_.fields().file(), "' has the tensor ", quote(name), ", which the architecture '",
                       family.architecture, "' does not use"),
                  "Convert the model again, or take its file from another source");
    }
  }

 private:
  GgufFile file_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // tensors may also refer to these bytes
};

/// Unused tokens have no text.
inline std::vector<std::string> gguf_vocabulary(const GgufFields& fields) {
  const char *key = "tokenizer.ggml.tokens", *type_key = "tokenizer.ggml.token_type";
  if (!fields.has(key)) return {};
  const auto tokens = fields.strings(key);
  std::vector<std::int64_t> types;
  if (fields.has(type_key)) types = fields.integers(type_key, tokens.size());
  std::vector<std::string> pieces(tokens.begin(), tokens.end());
  constexpr std::int64_t unused = 5;
  for (std::size_t id = 0; id < types.size(); ++id) {
    if (types[id] == unused) pieces[id].clear();
  }
  return pieces;
}

}}}
