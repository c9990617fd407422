// KvFormat: storage format of a KV cache.
#pragma once

#include <array>
#include <string_view>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

/// int8: each row of a head and position has codes of -127..127 and one float scale. The enumerators' values are part
/// of the file format of saved sequences.
enum class KvFormat { f32 = 0, f16 = 1, bf16 = 2, int8 = 3 };

inline constexpr std::array kv_formats = {KvFormat::f32, KvFormat::f16, KvFormat::bf16, KvFormat::int8};

constexpr std::string_view name_of(KvFormat format) {
  switch (format) {
    case KvFormat::f32: return "f32";
    case KvFormat::f16: return "f16";
    case KvFormat::bf16: return "bf16";
    case KvFormat::int8: return "int8";
  }
  return "?";
}

/// Throws cache.unknown-format.
inline KvFormat kv_format_named(std::string_view name) {
  for (const KvFormat format : kv_formats) {
    if (name == name_of(format)) return format;
  }
  throw Error("cache.unknown-format", text("expected a KV cache format, found ", quote(name)),
              "Use f32, f16, bf16 or int8");
}

}}
