// Element types of GGUF tensors by their numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

struct GgufType {
  std::uint32_t id = 0;
  std::string_view name;
  int values = 0;                // values per block, along a row; 0: a type removed from the format
  std::size_t bytes = 0;         // bytes per block
  std::optional<DType> dtype{};  // none: only the size is known

  constexpr GgufType(std::uint32_t number, DType type)
      : id(number), name(name_of(type)), values(values_of_block(type)), bytes(bytes_of(type)), dtype(type) {}
  constexpr GgufType(std::uint32_t number, std::string_view word, int count = 0, std::size_t size = 0)
      : id(number), name(word), values(count), bytes(size) {}
};

/// All types that files have contained. Those without a DType serve error messages.
inline constexpr GgufType gguf_types[] = {
    {0, DType::f32},       {1, DType::f16},      {2, DType::q4_0},     {3, DType::q4_1},
    {4, "Q4_2"},           {5, "Q4_3"},          {6, DType::q5_0},     {7, DType::q5_1},
    {8, DType::q8_0},      {9, "Q8_1", 32, 36},  {10, DType::q2_k},    {11, DType::q3_k},
    {12, DType::q4_k},     {13, DType::q5_k},    {14, DType::q6_k},    {15, "Q8_K", 256, 292},
    {16, DType::iq2_xxs},  {17, DType::iq2_xs},  {18, DType::iq3_xxs}, {19, DType::iq1_s},
    {20, DType::iq4_nl},   {21, DType::iq3_s},   {22, DType::iq2_s},   {23, DType::iq4_xs},
    {24, DType::i8},       {25, DType::i16},     {26, DType::i32},     {27, DType::i64},
    {28, DType::f64},      {29, DType::iq1_m},   {30, DType::bf16},    {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},      {33, "Q4_0_8_8"},     {34, DType::tq1_0},   {35, DType::tq2_0},
    {36, "IQ4_NL_4_4"},    {37, "IQ4_NL_4_8"},   {38, "IQ4_NL_8_8"},   {39, DType::mxfp4},
    {40, "NVFP4", 64, 36}, {41, "Q1_0", 128, 18}};

/// Returns null for an unknown number.
inline const GgufType* gguf_type(std::uint32_t id) {
  const auto found =
      std::find_if(std::begin(gguf_types), std::end(gguf_types), [id](const GgufType& type) { return type.id == id; });
  return found == std::end(gguf_types) ? nullptr : found;
}

}}
