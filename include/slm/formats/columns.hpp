// Extracts columns (a range of inputs) of a linear layer as a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>

#include "slm/core/dim.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

/// A layer can be divided at multiples of this many inputs.
inline std::int64_t column_unit(const Tensor& tensor) { return values_of_block(tensor.dtype); }
inline std::int64_t column_unit(const Int4Tensor& layer) {
  switch (layer.layout) {
    case Int4Layout::awq_gemv: return 8 * layer.group;  // zeros that share a word
    case Int4Layout::awq_gemv_fast: return std::lcm<std::int64_t>(layer.group, 64);
    case Int4Layout::packed_rows:
    case Int4Layout::gptq: return std::lcm<std::int64_t>(layer.group, 8);
    default: return layer.group;
  }
}
inline std::int64_t column_unit(const LinearSource& source) {
  return std::visit([](const auto& layer) { return column_unit(layer); }, source);
}

/// Owns the tensors that extracted layers refer to.
using ColumnParts = std::deque<Tensor>;

/// Copies the columns [first, first + count) of a matrix. Both ends must be multiples of column_unit(), or the matrix's
/// end. Rows are aligned to cache lines if their length allows it.
inline Tensor columns_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  constexpr std::size_t line = 64;
  const auto bytes = [&](std::int64_t values) {
    return static_cast<std::size_t>(values / values_of_block(tensor.dtype)) * bytes_of(tensor.dtype);
  };
  const std::int64_t rows = tensor.shape.at(0);
  const std::size_t row_of_all = bytes(tensor.shape.at(1)), row = bytes(count);
  Tensor part = tensor;
  part.shape[1] = count;
  part.size_bytes = static_cast<std::size_t>(rows) * row;
  const std::shared_ptr<std::byte[]> memory = std::make_unique_for_overwrite<std::byte[]>(part.size_bytes + line);
  void* aligned = memory.get();
  std::size_t space = part.size_bytes + line;
  std::align(line, part.size_bytes, aligned, space);
  auto* const to = static_cast<std::byte*>(aligned);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto index = static_cast<std::size_t>(r);
    std::memcpy(to + index * row, tensor.bytes + index * row_of_all + bytes(first), row);
  }
  part.bytes = to;
  part.owner = std::shared_ptr<const std::byte[]>(memory, to);
  return part;
}
inline Tensor columns_of(const Tensor& tensor, std::int64_t first, std::int64_t count, ColumnParts&) {
  return columns_of(tensor, first, count);
}

/// Overload for a 4-bit layer. Its tensors are added to `parts`; they refer to the file if inputs are their rows.
inline Int4Tensor columns_of(const Int4Tensor& layer, std::int64_t first, std::int64_t count, ColumnParts& parts) {
  Int4Tensor part = layer;
  part.in = count;
  const std::int64_t first_group = first / layer.group, groups = count / layer.group;
  const auto take = [&parts](const Tensor* tensor, auto take_part, std::int64_t from, std::int64_t some) {
    return tensor == nullptr ? nullptr : &parts.emplace_back(take_part(*tensor, from, some));
  };
  const auto columns = [](const Tensor& tensor, std::int64_t from, std::int64_t some) {
    return columns_of(tensor, from, some);
  };
  const auto rows = [](const Tensor& tensor, std::int64_t from, std::int64_t some) {
    return rows_of(tensor, from, some);
  };
  switch (layer.layout) {
    case Int4Layout::awq_gemv:
    case Int4Layout::packed_rows: {
      const bool words_of_groups = layer.layout == Int4Layout::awq_gemv;
      part.codes = take(layer.codes, columns, first / 8, ceil_div<std::int64_t>(count, 8));
      part.scales = take(layer.scales, columns, first_group, groups);
      part.zeros = words_of_groups ? take(layer.zeros, columns, first_group / 8, ceil_div<std::int64_t>(groups, 8))
                                   : take(layer.zeros, columns, first_group, groups);
      break;
    }
    case Int4Layout::awq_gemv_fast:
      part.codes = take(layer.codes, columns, first, count);
      part.scales = take(layer.scales, rows, first_group, groups);
      part.zeros = take(layer.zeros, rows, first_group, groups);
      break;
    default:
      part.codes = layer.layout == Int4Layout::gptq
                       ? take(layer.codes, rows, first / 8, ceil_div<std::int64_t>(count, 8))
                       : take(layer.codes, rows, first, count);
      part.scales = take(layer.scales, rows, first_group, groups);
      part.zeros = take(layer.zeros, rows, first_group, groups);
  }
  return part;
}
inline LinearSource columns_of(const LinearSource& source, std::int64_t first, std::int64_t count, ColumnParts& parts) {
  return std::visit([&](const auto& layer) -> LinearSource { return columns_of(layer, first, count, parts); }, source);
}

}}
