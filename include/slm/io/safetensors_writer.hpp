// Writes a safetensors file atomically, and a model's weights as one file or as shards.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "slm/core/os/mapping_guard.hpp"
#include "slm/core/os/path.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/json.hpp"
#include "slm/io/write_file.hpp"

namespace slm { inline namespace v0_1 {

/// bytes_of(tensor): returns the tensor.size_bytes bytes to write, valid until the next call. Throws io.unwritable, and
/// the exceptions of bytes_of.
template <class BytesOf>
void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors, BytesOf&& bytes_of) {
  OwnedJson header = Json::object();
  new_member(header, "__metadata__")["format"] = "pt";
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    Json& entry = new_member(header, tensor.name);
    entry["dtype"] = name_of(tensor.dtype);
    set_list(entry, "shape", tensor.shape);
    set_list(entry, "data_offsets", std::array{offset, offset + tensor.size_bytes});
    offset += tensor.size_bytes;
  }
  std::string json = header.dump();
  json.append((64 - (sizeof offset + json.size()) % 64) % 64, ' ');  // data is aligned to a cache line
  const std::uint64_t length = json.size();
  write_file_whole(path, [&](std::ostream& file) {
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file.write(json.data(), static_cast<std::streamsize>(json.size()));
    for (const Tensor& tensor : tensors) {
      std::span<const std::byte> rest(bytes_of(tensor), tensor.size_bytes);
      while (!rest.empty()) {
        constexpr std::size_t most = std::size_t{1} << 24;
        const auto next = rest.first(std::min(most, rest.size()));
        detail::read_pages(next);
        file.write(reinterpret_cast<const char*>(next.data()), static_cast<std::streamsize>(next.size()));
        rest = rest.subspan(next.size());
      }
    }
  });
}

inline void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors) {
  write_safetensors(path, tensors, [](const Tensor& tensor) { return tensor.bytes; });
}

/// Writes model.safetensors into a folder, or shards of at most most_bytes bytes with an index. Returns the bytes of
/// all tensors.
template <class BytesOf>
std::uint64_t write_weights(const std::filesystem::path& folder, std::span<const Tensor> tensors,
                            std::uint64_t most_bytes, BytesOf&& bytes_of) {
  std::vector<std::span<const Tensor>> shards;
  std::uint64_t total = 0, in_shard = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (in_shard > 0 && in_shard + tensors[i].size_bytes > most_bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      in_shard = 0;
    }
    in_shard += tensors[i].size_bytes;
    total += tensors[i].size_bytes;
  }
  shards.push_back(tensors.subspan(begin));
  if (shards.size() == 1) {
    write_safetensors(folder / "model.safetensors", tensors, bytes_of);
    return total;
  }
  const auto five_digits = [](std::size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  OwnedJson index = Json::object();
  new_member(index, "metadata")["total_size"] = total;
  Json& map = new_member(index, "weight_map");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = "model-" + five_digits(i + 1) + "-of-" + five_digits(shards.size()) + ".safetensors";
    write_safetensors(folder / name, shards[i], bytes_of);
    for (const Tensor& tensor : shards[i]) map[tensor.name] = name;
  }
  write_text_file(folder / "model.safetensors.index.json", index.dump(2) + "\n");
  return total;
}

/// The folder of named chat templates.
inline constexpr std::string_view more_templates = "additional_chat_templates";

/// Files besides weights and config.json that other programs expect in a model folder.
inline std::vector<std::filesystem::path> companions_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "generation_config.json", "chat_template.json", "chat_template.jinja", "LICENSE"}) {
    std::error_code failure;
    if (std::filesystem::is_regular_file(folder / name, failure)) files.push_back(folder / name);
  }
  std::error_code failure;
  const std::filesystem::path templates = folder / more_templates;
  if (!std::filesystem::is_directory(templates, failure)) return files;
  for (const std::string& text : names_in(templates, failure)) {
    const std::filesystem::path name = path_of(text);
    const bool wanted = name.extension() == ".jinja" && std::filesystem::is_regular_file(templates / name, failure);
    if (wanted) files.push_back(templates / name);
  }
  return files;
}

/// Copies one of these files into another folder.
inline void copy_companion(const std::filesystem::path& file, std::filesystem::path folder) {
  std::error_code failure;
  if (file.parent_path().filename() == more_templates) {
    folder /= more_templates;
    std::filesystem::create_directories(folder, failure);
  }
  const std::filesystem::path to = folder / file.filename();
  if (failure || !std::filesystem::copy_file(file, to, failure) || failure) throw unwritable(to, failure);
}

}}
