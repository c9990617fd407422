// The functions of open_model.hpp, in the formats that this program reads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/io/left_out_format.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/model_files.hpp"
#include "slm/io/open_model.hpp"
#if !defined(SLM_NO_FOLDERS)
#include "slm/io/folder_files.hpp"
#endif
#if !defined(SLM_NO_GGUF)
#include "slm/io/gguf_model_files.hpp"
#endif

namespace slm { inline namespace v0_1 {
namespace detail {

SLM_INLINE std::unique_ptr<ModelFiles> open_model(const std::filesystem::path& model) {
#if !defined(SLM_NO_GGUF)
  if (const auto file = gguf_of(model)) return std::make_unique<GgufModelFiles>(*file);
#endif
  if (!file_exists(model)) {
    throw Error("checkpoint.no-folder", text("'", model.string(), "': expected a folder or a GGUF file"),
                "Name a Hugging Face model folder (config.json, model.safetensors and tokenizer.json), or a GGUF file");
  }
#if defined(SLM_NO_FOLDERS)
  throw left_out_format(model);
#else
  std::error_code failure;
  if (std::filesystem::is_directory(model, failure)) return std::make_unique<FolderFiles>(model);
#if defined(SLM_NO_GGUF)
  throw left_out_format(model);
#else
  return std::make_unique<GgufModelFiles>(model);  // throws Error about what the file is instead
#endif
#endif
}

}  // namespace detail

SLM_INLINE std::vector<std::string> read_vocabulary(const std::filesystem::path& folder, int vocab) {
#if !defined(SLM_NO_GGUF)
  if (const auto file = gguf_of(folder)) return read_gguf_fields(*file, detail::gguf_vocabulary);
#endif
#if defined(SLM_NO_FOLDERS)
  static_cast<void>(vocab);
  return {};
#else
  return detail::folder_vocabulary(folder, vocab);
#endif
}

}}
