// Writes a safetensors file, whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "slm/core/tensor.hpp"
#include "slm/io/json.hpp"
#include "slm/io/write_file.hpp"

namespace slm {

/// Throws io.unwritable.
inline void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", name_of(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.size_bytes}}};
    offset += tensor.size_bytes;
  }
  std::string json = header.dump();
  json.append((64 - (sizeof offset + json.size()) % 64) % 64, ' ');  // data starts on a cache line
  const std::uint64_t length = json.size();
  write_file_whole(path, [&](std::ostream& file) {
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file.write(json.data(), static_cast<std::streamsize>(json.size()));
    for (const Tensor& tensor : tensors) {
      file.write(reinterpret_cast<const char*>(tensor.bytes), static_cast<std::streamsize>(tensor.size_bytes));
    }
  });
}

}  // namespace slm
