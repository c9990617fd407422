// Reads Protobuf's wire format, the format of SentencePiece models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

/// Reads one message field by field. Lengths are checked against the available bytes.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  struct Field {
    std::uint64_t number = 0;
    int wire_type = 0;
    std::uint64_t value = 0;  // varint, or the bits of a fixed-width number
    std::string_view bytes;   // length-delimited
  };

  /// The next field, or none at the end.
  std::optional<Field> next() {
    if (bytes_.empty()) return std::nullopt;
    const std::uint64_t tag = varint();
    Field field{tag >> 3, static_cast<int>(tag & 7), 0, {}};
    switch (field.wire_type) {
      case 0: field.value = varint(); break;
      case 1: field.value = fixed<std::uint64_t>(); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.value = fixed<std::uint32_t>(); break;
      default:
        broken(
            text("wire type ", field.wire_type, " of field ", field.number, ": expected one that SentencePiece uses"));
    }
    return field;
  }

  [[noreturn]] void broken(const std::string& what) const {
    throw Error("tokenizer.broken-model", text(file_, ": ", what), "Download the file again");
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    broken("a number has more than 64 bits");
  }

  template <class Integer>
  Integer fixed() {
    Integer value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view take(std::uint64_t length) {
    if (length > bytes_.size()) broken(text("it is truncated: ", length, " bytes expected, ", bytes_.size(), " found"));
    const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(length));
    bytes_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view bytes_;
  const std::string& file_;
};

}}
