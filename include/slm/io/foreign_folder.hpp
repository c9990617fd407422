// Detects model folders of other programs by their files, for specific error messages.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/folder.hpp"
#include "slm/core/os/path.hpp"

namespace slm { inline namespace v0_1 {

/// Throws Error for a folder whose only weights are ONNX or pickle files. Accepts other folders, also empty ones.
inline void refuse_foreign_folder(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::string onnx, pickle;  // first file of each kind
  std::error_code failure;
  std::vector<std::string> files = names_in(folder, failure);
  std::sort(files.begin(), files.end());  // keeps the message independent of the order on disk
  for (const std::string& file : files) {
    const std::string ending = path_of(file).extension().string();
    if (ending == ".safetensors" || file == "model.safetensors.index.json") return;
    const auto note = [&](std::string& kind) {
      if (kind.empty()) kind = file;
    };
    if (ending == ".onnx" || file == "genai_config.json" || file == "onnx") note(onnx);
    if (ending == ".bin" || ending == ".pt" || ending == ".pth") note(pickle);
  }
  if (!onnx.empty()) {
    throw Error(
        "checkpoint.onnx",
        text("'", folder.string(), "' is an ONNX export ('", onnx,
             "', as for Ryzen AI or onnxruntime-genai); expected a safetensors checkpoint"),
        "Use the model's AWQ or floating-point safetensors repository; slm quantize converts the latter to AWQ");
  }
  if (!pickle.empty()) {
    throw Error(
        "checkpoint.pickle",
        text("'", folder.string(), "' has pickled weights ('", pickle,
             "', as of PyTorch or llm-awq), which run code when read; expected safetensors"),
        "Convert pytorch_model.bin with python3 examples/convert_bin.py FOLDER, or use a repository with safetensors");
  }
}

}}
