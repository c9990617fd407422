// The element types of GGUF tensors: number, name, and how many values a block of how many bytes holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace slm {

/// The types that have values here; their numbers are the file's. formats/gguf_blocks.hpp reads them.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  bf16 = 30,
};

struct GgufTypeInfo {
  std::uint32_t id = 0;
  std::string_view name;
  std::int64_t values = 0;  // of a block, along a row; 0: a type that the format has given up
  std::int64_t bytes = 0;   // of a block
  bool readable = false;    // whether it is a GgufType

  GgufType type() const { return static_cast<GgufType>(id); }
};

/// Every type that files have held. Those that are not readable are here to be named.
inline constexpr GgufTypeInfo gguf_types[] = {{0, "F32", 1, 4, true},
                                              {1, "F16", 1, 2, true},
                                              {2, "Q4_0", 32, 18, true},
                                              {3, "Q4_1", 32, 20, true},
                                              {4, "Q4_2", 0, 0},
                                              {5, "Q4_3", 0, 0},
                                              {6, "Q5_0", 32, 22, true},
                                              {7, "Q5_1", 32, 24, true},
                                              {8, "Q8_0", 32, 34, true},
                                              {9, "Q8_1", 32, 36},
                                              {10, "Q2_K", 256, 84, true},
                                              {11, "Q3_K", 256, 110, true},
                                              {12, "Q4_K", 256, 144, true},
                                              {13, "Q5_K", 256, 176, true},
                                              {14, "Q6_K", 256, 210, true},
                                              {15, "Q8_K", 256, 292},
                                              {16, "IQ2_XXS", 256, 66},
                                              {17, "IQ2_XS", 256, 74},
                                              {18, "IQ3_XXS", 256, 98},
                                              {19, "IQ1_S", 256, 50},
                                              {20, "IQ4_NL", 32, 18, true},
                                              {21, "IQ3_S", 256, 110},
                                              {22, "IQ2_S", 256, 82},
                                              {23, "IQ4_XS", 256, 136},
                                              {24, "I8", 1, 1},
                                              {25, "I16", 1, 2},
                                              {26, "I32", 1, 4},
                                              {27, "I64", 1, 8},
                                              {28, "F64", 1, 8},
                                              {29, "IQ1_M", 256, 56},
                                              {30, "BF16", 1, 2, true},
                                              {31, "Q4_0_4_4", 0, 0},
                                              {32, "Q4_0_4_8", 0, 0},
                                              {33, "Q4_0_8_8", 0, 0},
                                              {34, "TQ1_0", 256, 54},
                                              {35, "TQ2_0", 256, 66},
                                              {36, "IQ4_NL_4_4", 0, 0},
                                              {37, "IQ4_NL_4_8", 0, 0},
                                              {38, "IQ4_NL_8_8", 0, 0},
                                              {39, "MXFP4", 32, 17},
                                              {40, "NVFP4", 64, 36},
                                              {41, "Q1_0", 128, 18}};

/// Null: no type of this number is known.
inline const GgufTypeInfo* gguf_type_info(std::uint32_t id) {
  const auto found =
      std::find_if(std::begin(gguf_types), std::end(gguf_types), [id](const auto& info) { return info.id == id; });
  return found == std::end(gguf_types) ? nullptr : found;
}

inline const GgufTypeInfo& info_of(GgufType type) { return *gguf_type_info(static_cast<std::uint32_t>(type)); }

}  // namespace slm
