// Parses GGUF: a header of metadata and tensor descriptions, then data. All input is untrusted until checked; memory
// use is bounded by the file's size.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/gguf_types.hpp"
#include "slm/io/gguf_fields.hpp"

namespace slm { inline namespace v0_1 {

/// One array of a GGUF file. Refers to the file's bytes.
struct GgufTensor {
  std::string_view name;
  const GgufType* type = nullptr;
  std::vector<std::int64_t> shape;  // row-major, as in a Hugging Face folder: a weight is [out, in]
  const std::byte* bytes = nullptr;
  std::size_t size_bytes = 0;
};

struct GgufContents {
  GgufFields fields;
  std::vector<GgufTensor> tensors;  // in file order; names may repeat
};

namespace detail {

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  GgufContents read() {
    check_magic();
    const auto tensor_count = number<std::uint64_t>();
    const auto pair_count = number<std::uint64_t>();
    check_count(pair_count, 8 + 1 + 4 + 1, "gguf.pair-count", "metadata pairs");
    check_count(tensor_count, 8 + 1 + 4 + 8 + 4 + 8, "gguf.tensor-count", "tensors");
    GgufFields fields = read_fields(pair_count);
    std::vector<GgufTensor> tensors = read_tensors(tensor_count, alignment_of(fields));
    return {std::move(fields), std::move(tensors)};
  }

 private:
  static constexpr std::uint64_t longest_key = 65535, longest_tensor_name = 63, most_elements = std::uint64_t{1} << 30;
  static constexpr std::uint64_t most_bytes = std::uint64_t{1}
                                              << 62;  // limit for all tensors: sums of two cannot overflow

  void check_magic() {
    const std::string_view start{reinterpret_cast<const char*>(bytes_.data()),
                                 std::min<std::size_t>(bytes_.size(), 16)};
    if (!start.starts_with("GGUF")) {
      const bool older = start.starts_with("tjgg") || start.starts_with("lmgg") || start.starts_with("fmgg");
      throw Error("gguf.bad-magic",
                  text("'", file_, "' is ", older ? "a GGML file, older than GGUF" : "no GGUF file",
                       ": it begins with ", quote(start.substr(0, 4)), ", expected 'GGUF'"),
                  older ? "Convert the model again with a current convert_hf_to_gguf.py"
                        : "Name a GGUF file, or the folder with a model's config.json and weights");
    }
    place_ = "its first 24 bytes";
    take(4);
    const auto version = number<std::uint32_t>();
    if (version != 0 && (version & 0xffff) == 0) {
      throw Error("gguf.big-endian",
                  text("'", file_, "' is a big-endian file (version ", __builtin_bswap32(version), ")"),
                  "Use the little-endian file of the model: convert_hf_to_gguf.py writes it without --bigendian");
    }
    if (version != 2 && version != 3) {
      throw Error("gguf.version", text("'", file_, "' is of GGUF version ", version, ", expected 2 or 3"),
                  version < 2 ? "Convert the model again with a current convert_hf_to_gguf.py"
                              : "Use a newer slm, or a file of version 3");
    }
  }

  /// Checks a count before reserving memory: the remaining bytes must be able to hold that many elements.
  void check_count(std::uint64_t count, std::uint64_t least_bytes, std::string_view id, const char* what) const {
    if (count > left() / least_bytes) {
      throw fault(id, text("says it has ", count, " ", what, ", but only ", left(), " bytes follow"));
    }
  }

  GgufFields read_fields(std::uint64_t count) {
    std::vector<GgufFields::Entry> entries;
    entries.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      place_ = "a key of its metadata";
      const std::string_view key = string(longest_key);
      const auto is_printable = [](char byte) { return byte >= 0x20 && byte < 0x7f; };
      if (key.empty() || !std::all_of(key.begin(), key.end(), is_printable)) {
        throw fault("gguf.bad-key", text("has the key ", quote(key), " (number ", i, "), expected printable ASCII"));
      }
      place_ = "the value of key";
      name_ = key;
      entries.emplace_back(key, read_value(key));
      name_ = {};
    }
    const auto key_of = [](const GgufFields::Entry& entry) { return entry.first; };
    std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return key_of(a) < key_of(b); });
    const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                          [&](const auto& a, const auto& b) { return key_of(a) == key_of(b); });
    if (twice != entries.end()) {
      throw fault("gguf.duplicate-key", text("has the key ", quote(twice->first), " twice"));
    }
    return GgufFields(std::move(entries), file_);
  }

  GgufValueType value_type(std::string_view key) {
    const auto type = number<std::uint32_t>();
    if (type > static_cast<std::uint32_t>(GgufValueType::f64)) {
      throw fault("gguf.value-type", text("gives key ", quote(key), " a value of the unknown type ", type));
    }
    return static_cast<GgufValueType>(type);
  }

  GgufValue read_value(std::string_view key) {
    GgufValue value;
    value.type = value_type(key);
    if (value.is(GgufValueType::array)) {
      value.is_array = true;
      value.type = value_type(key);
      if (value.is(GgufValueType::array)) {
        throw fault("gguf.nested-array", text("gives key ", quote(key), " an array of arrays"));
      }
      value.count = number<std::uint64_t>();
      const std::uint64_t least =
          std::max<std::uint64_t>(bytes_of(value.type), value.is(GgufValueType::string) ? 8 : 1);
      if (value.count > most_elements || value.count > left() / least) {
        throw fault("gguf.array-length", text("gives key ", quote(key), " an array of ", value.count, " ",
                                              name_of(value.type), ", but only ", left(), " bytes follow"));
      }
    }
    value.bytes = bytes_.data() + position_;
    if (value.is(GgufValueType::string)) {
      for (std::uint64_t i = 0; i < value.count; ++i) string(most_elements);
      return value;
    }
    take(value.count * bytes_of(value.type));
    if (value.is(GgufValueType::boolean)) {
      const auto sound = [](std::byte byte) { return byte <= std::byte{1}; };
      if (!std::all_of(value.bytes, value.bytes + value.count, sound)) {
        throw fault("gguf.bad-boolean", text("gives key ", quote(key), " a truth value other than 0 and 1"));
      }
    }
    return value;
  }

  std::uint64_t alignment_of(const GgufFields& fields) const {
    const GgufValue* value = fields.find("general.alignment");
    if (!value) return 32;
    const auto alignment = static_cast<std::uint64_t>(value->is_array ? 0 : value->integer().value_or(0));
    if (!std::has_single_bit(alignment) || alignment < 8 || alignment > 1 << 20) {
      throw fault("gguf.alignment", text("has a general.alignment that is ", value->described(),
                                         ", expected a power of two from 8 to 1048576"));
    }
    return alignment;
  }

  std::vector<GgufTensor> read_tensors(std::uint64_t count, std::uint64_t alignment) {
    const auto padded = [alignment](std::uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
    std::vector<GgufTensor> tensors;
    tensors.reserve(static_cast<std::size_t>(count));
    std::vector<std::uint64_t> offsets;
    std::uint64_t end = 0;  // end of the data so far, padded
    for (std::uint64_t i = 0; i < count; ++i) {
      place_ = "the description of a tensor";
      name_ = {};
      name_ = string(~std::uint64_t{0});
      if (name_.empty() || name_.size() > longest_tensor_name) {
        throw fault("gguf.tensor-name", text("has a tensor with the name ", quote(name_), " of ", name_.size(),
                                             " bytes, expected 1..", longest_tensor_name));
      }
      GgufTensor tensor = read_shape_and_type();
      const auto offset = number<std::uint64_t>();
      if (offset != end) {
        throw fault("gguf.offset", text("places tensor ", quote(name_), " at ", offset, " of its data, expected ", end,
                                        ", where the tensor before it ends"));
      }
      if (tensor.size_bytes > most_bytes - end - alignment) {
        throw fault("gguf.tensor-size", text("has tensors of more than ", most_bytes, " bytes"));
      }
      offsets.push_back(offset);
      end = padded(end + tensor.size_bytes);
      tensors.push_back(std::move(tensor));
    }
    if (count > 0) place_data(tensors, offsets, padded(position_));
    return tensors;
  }

  GgufTensor read_shape_and_type() {
    const auto dimensions = number<std::uint32_t>();
    if (dimensions > 4) {
      throw fault("gguf.dimensions",
                  text("gives tensor ", quote(name_), " ", dimensions, " dimensions, expected at most 4"));
    }
    GgufTensor tensor{.name = name_, .type = nullptr, .shape = {}, .bytes = nullptr, .size_bytes = 0};
    std::uint64_t elements = 1;
    std::uint64_t product = 1;  // with 1 for 0, so that extents can be multiplied in any order
    for (std::uint32_t axis = 0; axis < dimensions; ++axis) {
      const auto extent = number<std::uint64_t>();
      if (extent > most_bytes || product > most_bytes / std::max<std::uint64_t>(extent, 1)) {
        throw fault("gguf.tensor-size", text("gives tensor ", quote(name_), " a dimension of ", extent,
                                             ": more elements than any file holds"));
      }
      product *= std::max<std::uint64_t>(extent, 1);
      elements *= extent;
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
    }
    const auto id = number<std::uint32_t>();
    tensor.type = gguf_type(id);
    if (!tensor.type) {
      throw Error("gguf.unknown-type", text("'", file_, "': tensor ", quote(name_), " is of the unknown type ", id),
                  "Use a file of a common type, such as Q4_K_M, Q4_0 or Q8_0");
    }
    if (tensor.type->values == 0) {
      throw Error("gguf.removed-type",
                  text("'", file_, "': tensor ", quote(name_), " is of the type ", tensor.type->name,
                       ", which GGUF no longer has"),
                  id >= 31 ? "It was repacked for one kind of processor: use the model's Q4_0 or IQ4_NL file"
                           : "Convert the model again");
    }
    const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % tensor.type->values != 0) {
      throw fault("gguf.row-length",
                  text("has tensor ", quote(name_), " with rows of ", row, " values, which blocks of ",
                       tensor.type->values, " (", tensor.type->name, ") do not divide"));
    }
    const std::uint64_t blocks = elements / static_cast<std::uint64_t>(tensor.type->values);
    if (blocks > most_bytes / std::uint64_t{tensor.type->bytes}) {
      throw fault("gguf.tensor-size", text("gives tensor ", quote(name_), " more bytes than any file holds"));
    }
    tensor.size_bytes = static_cast<std::size_t>(blocks * std::uint64_t{tensor.type->bytes});
    return tensor;
  }

  void place_data(std::vector<GgufTensor>& tensors, const std::vector<std::uint64_t>& offsets,
                  std::uint64_t data) const {
    // Padding after the last tensor may be missing.
    const std::uint64_t expected = data + offsets.back() + tensors.back().size_bytes;
    if (expected > bytes_.size()) {
      throw Error(
          "gguf.cut-short",
          text("'", file_, "' is cut short: its tensors take ", expected, " bytes, the file has ", bytes_.size()),
          "Download the rest of the file");
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].bytes = bytes_.data() + static_cast<std::size_t>(data + offsets[i]);
    }
  }

  std::uint64_t left() const { return bytes_.size() - position_; }

  std::span<const std::byte> take(std::uint64_t size) {
    if (size > left()) {
      throw Error(
          "gguf.cut-short",
          text("'", file_, "' ends inside ", place_, name_.empty() ? "" : " ", name_.empty() ? "" : quote(name_), ": ",
               size, " bytes expected at byte ", position_, ", ", left(), " found"),
          "Download the rest of the file");
    }
    const auto taken = bytes_.subspan(position_, static_cast<std::size_t>(size));
    position_ += taken.size();
    return taken;
  }

  template <class T>
  T number() {
    return load_unaligned<T>(take(sizeof(T)).data());
  }

  std::string_view string(std::uint64_t longest) {
    const auto length = number<std::uint64_t>();
    if (length > longest) {
      throw fault("gguf.string-length",
                  text("has ", place_, name_.empty() ? "" : " ", name_.empty() ? "" : quote(name_),
                       " with a string of ", length, " bytes, at most ", longest, " are expected"));
    }
    const auto taken = take(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  Error fault(std::string_view id, const std::string& what) const {
    return Error(id, text("'", file_, "' ", what),
                 "The file is damaged: download it again, or convert the model again");
  }

  std::span<const std::byte> bytes_;
  std::string file_;
  std::size_t position_ = 0;
  const char* place_ = "";  // current position for messages: kind, and name of the key or tensor
  std::string_view name_;
};

}  // namespace detail

/// Parses a GGUF file in memory. The contents refer to `bytes`. file: name for messages.
inline GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  return detail::GgufParser(bytes, file).read();
}

}}
