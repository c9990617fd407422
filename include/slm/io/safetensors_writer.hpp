// Writes a safetensors file: to a temporary name first, so that a full disk leaves nothing half-written behind.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/json.hpp"

namespace slm {

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

  const std::filesystem::path temporary = path.string() + ".partial";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(json.data(), static_cast<std::streamsize>(json.size()));
  for (const Tensor& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes), static_cast<std::streamsize>(tensor.size_bytes));
  }
  file.close();
  std::error_code failure;
  if (file) std::filesystem::rename(temporary, path, failure);
  if (!file || failure) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw Error("io.unwritable", text("cannot write '", path.string(), "' (", offset + 8 + length, " bytes)"),
                "Check the folder, its permissions and the free space");
  }
}

}  // namespace slm
