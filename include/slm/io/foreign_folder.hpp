// Model folders of other programs: recognised by their files, so that the message can say what to do.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/folder.hpp"

namespace slm { inline namespace v0_1 {

/// Throws Error for a folder whose weights are only there as ONNX or pickle. Other folders pass, empty ones too.
inline void refuse_foreign_folder(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::string onnx, pickle;  // the first of each kind
  std::error_code failure;
  std::vector<std::string> files = names_in(folder.string(), failure);
  std::sort(files.begin(), files.end());  // the same message whatever the order on disk
  for (const std::string& file : files) {
    const std::string ending = fs::path(file).extension().string();
    if (ending == ".safetensors" || file == "model.safetensors.index.json") return;
    const auto note = [&](std::string& kind) {
      if (kind.empty()) kind = file;
    };
    if (ending == ".onnx" || file == "genai_config.json" || file == "onnx") note(onnx);
    if (ending == ".bin" || ending == ".pt" || ending == ".pth") note(pickle);
  }
  if (!onnx.empty()) {
    throw Error("checkpoint.onnx",
                text("'", folder.string(), "' is an ONNX export ('", onnx,
                     "', as for Ryzen AI or onnxruntime-genai), not a safetensors checkpoint"),
                "Take the model's AWQ or floating-point safetensors repository; slm quantize makes the first of the "
                "second");
  }
  if (!pickle.empty()) {
    throw Error("checkpoint.pickle",
                text("'", folder.string(), "' holds pickled weights ('", pickle,
                     "', as of PyTorch or llm-awq), which run code when read, and no safetensors"),
                "Convert pytorch_model.bin with python3 examples/convert_bin.py FOLDER, or take a repository that has "
                "safetensors");
  }
}

}}
