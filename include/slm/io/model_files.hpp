// ModelFiles: the opened files of a model, of any format.
#pragma once

#include <span>

#include "slm/io/family.hpp"
#include "slm/io/name_prefixes.hpp"
#include "slm/io/stated_quantization.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 {

class GgufFile;

namespace detail {

/// The content of the files. The tensors refer to the opened files.
struct ModelContent {
  ModelDescription model;
  StatedQuantization quantization;
  TensorMap tensors;
};

class ModelFiles {
 public:
  ModelFiles() = default;
  ModelFiles(const ModelFiles&) = delete;
  ModelFiles& operator=(const ModelFiles&) = delete;
  virtual ~ModelFiles() = default;

  /// Throws io.file-changed if a file was truncated since it was opened, or could not be read.
  virtual void check_unchanged() const = 0;

  /// Throws Error if the files have tensors that the model does not read and that may not be ignored.
  virtual void check_read(const TensorMap&, const Family&, const ModelConfig&, const TensorNames&) const {}

  /// The families whose tensors have these names, to explain missing tensors.
  virtual std::span<const Family* const> families() const { return {}; }

  /// The GGUF file, or null.
  virtual const GgufFile* gguf() const { return nullptr; }

  ModelContent content;
};

}
}}
