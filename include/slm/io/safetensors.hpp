// Parses safetensors: u64 header length, JSON header, data. The header is untrusted until every offset is checked.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm { inline namespace v0_1 {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian and are used in place");

using Tensors = std::map<std::string, Tensor, std::less<>>;

namespace detail {

class SafetensorsHeader {
 public:
  SafetensorsHeader(std::span<const std::byte> bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  Tensors read() {
    if (bytes_.size() < 8)
      throw fault("safetensors.too-short", text("has ", bytes_.size(), " bytes, expected at least 8"));
    const auto length = load_unaligned<std::uint64_t>(bytes_.data());
    if (length > std::min<std::uint64_t>(bytes_.size() - 8, 100'000'000)) {
      throw fault("safetensors.header-length", text("says its header has ", length, " bytes, but the file has ",
                                                    bytes_.size(), " (and 100000000 is the format's limit)"));
    }
    const char* header = reinterpret_cast<const char*>(bytes_.data()) + 8;
    const OwnedJson json = parse_json_object({header, static_cast<std::size_t>(length)}, file_);
    data_ = bytes_.subspan(8 + static_cast<std::size_t>(length));

    Tensors tensors;
    for (const auto& [name, entry] : json.items()) {
      if (name != "__metadata__") tensors.emplace(name, tensor(name, entry));
    }
    check_tiling(tensors);
    return tensors;
  }

 private:
  Tensor tensor(const std::string& name, const Json& entry) const {
    if (!entry.is_object())
      throw fault("safetensors.bad-entry", text("describes tensor ", quote(name), " by ", entry.type_name()));
    Tensor tensor{.name = name, .dtype = dtype(name, entry), .shape = {}, .bytes = nullptr, .size_bytes = 0};

    const auto shape = entry.find("shape");
    if (shape == entry.end() || !shape->is_array() || shape->size() > 8) {
      throw fault("safetensors.bad-shape",
                  text("gives tensor ", quote(name), " a shape that is not a list of at most 8 sizes"));
    }
    std::uint64_t size = bytes_of(tensor.dtype);
    for (const Json& extent : *shape) {
      if (!extent.is_number_unsigned())
        throw fault("safetensors.bad-shape",
                    text("gives tensor ", quote(name), " a shape that is not a list of sizes"));
      const auto value = extent.get<std::uint64_t>();
      if (value != 0 && size > data_.size() / value) {
        throw fault("safetensors.bad-shape", text("gives tensor ", quote(name), " a shape larger than the file"));
      }
      size *= value;
      tensor.shape.push_back(static_cast<std::int64_t>(value));
    }

    const auto offsets = entry.find("data_offsets");
    if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned()) {
      throw fault("safetensors.bad-offsets", text("gives tensor ", quote(name), " no pair of data_offsets"));
    }
    const auto begin = (*offsets)[0].get<std::uint64_t>();
    const auto end = (*offsets)[1].get<std::uint64_t>();
    if (begin > end || end > data_.size()) {
      throw fault("safetensors.bad-offsets",
                  text("places tensor ", quote(name), " at ", begin, "..", end, ", but there are ", data_.size(),
                       " bytes of data: the file is truncated or damaged"));
    }
    if (end - begin != size) {
      throw fault("safetensors.bad-offsets",
                  text("gives tensor ", quote(name), " ", end - begin, " bytes, but ", name_of(tensor.dtype), " ",
                       shape_text(tensor.shape), " takes ", size));
    }
    tensor.bytes = data_.data() + begin;
    tensor.size_bytes = static_cast<std::size_t>(size);
    return tensor;
  }

  DType dtype(const std::string& name, const Json& entry) const {
    const auto found = entry.find("dtype");
    if (found != entry.end() && found->is_string()) {
      for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i64, DType::i32, DType::i16,
                               DType::i8, DType::u8, DType::boolean, DType::f8_e4m3}) {
        if (found->get_ref<const std::string&>() == name_of(type)) return type;
      }
    }
    throw fault("safetensors.unknown-dtype", text("gives tensor ", quote(name), " the dtype ",
                                                  found == entry.end() ? "nothing" : quote_json(*found)));
  }

  /// The tensors must cover the data exactly: without holes, overlaps and trailing bytes.
  void check_tiling(const Tensors& tensors) const {
    std::vector<const Tensor*> order;
    for (const auto& [name, tensor] : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
      return std::pair(a->bytes, a->size_bytes) < std::pair(b->bytes, b->size_bytes);
    });
    const std::byte* expected = data_.data();
    for (const Tensor* tensor : order) {
      if (tensor->bytes != expected) {
        throw fault(
            tensor->bytes < expected ? "safetensors.overlap" : "safetensors.hole",
            text("has ", tensor->bytes < expected ? "an overlap" : "a hole", " before tensor ", quote(tensor->name)));
      }
      expected += tensor->size_bytes;
    }
    if (const auto rest = data_.data() + data_.size() - expected; rest != 0) {
      throw fault("safetensors.hole", text("has ", rest, " bytes after its last tensor"));
    }
  }

  Error fault(std::string_view id, const std::string& what) const {
    return Error(id, text("'", file_, "' ", what), "Download or export the file again");
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  std::string file_;
};

}  // namespace detail

/// Parses a safetensors file in memory. Tensors refer to `bytes`. file: name for messages.
inline Tensors parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  return detail::SafetensorsHeader(bytes, file).read();
}

/// A memory-mapped safetensors file.
struct Safetensors {
  explicit Safetensors(const std::filesystem::path& path)
      : file(path), tensors(parse_safetensors(file.bytes(), path.string())) {}

  MappedFile file;
  Tensors tensors;
};

}}
