// Int4Tensor: one linear layer of 4-bit codes, as stored in a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "slm/core/tensor.hpp"

namespace slm { inline namespace v0_1 {

/// Checkpoint layouts of codes, zero points and scales. K = in, N = out, G = group; codes are unsigned, 0..15.
enum class Int4Layout {
  awq_gemm,       // codes I32 [K, N/8], zeros I32 [K/G, N/8], both in AutoAWQ's nibble order; scales [K/G, N]
  awq_gemv,       // codes I32 [N, K/8], zeros I32 [N, padded], scales [N, 8 * padded]
  awq_gemv_fast,  // codes I16 [N/4, K] interleaved, zeros -scale * zero as floats, scales [padded, N]
  packed_rows,    // compressed-tensors: codes I32 [N, K/8], zeros I32 [N/8, K/G] or none, scales [N, K/G]
  quark_order,    // codes I32 [K, N/8] in sequence, zeros I32 [K/G, N/8] or none, scales [K/G, N]
  quark_reorder,  // the same in AutoAWQ's nibble order
  gptq,           // codes I32 [K/8, N], eight inputs per word, zeros I32 [K/G, N/8], scales [K/G, N]
};

constexpr std::string_view name_of(Int4Layout layout) {
  switch (layout) {
    case Int4Layout::awq_gemm: return "AutoAWQ gemm";
    case Int4Layout::awq_gemv: return "AutoAWQ gemv";
    case Int4Layout::awq_gemv_fast: return "AutoAWQ gemv_fast (llm-awq v2)";
    case Int4Layout::packed_rows: return "compressed-tensors pack-quantized";
    case Int4Layout::quark_order: return "Quark (order)";
    case Int4Layout::quark_reorder: return "Quark (reorder)";
    case Int4Layout::gptq: return "GPTQ";
  }
  return "?";
}

/// w[n][k] = (code[n][k] - zero[n][k / group]) * scale[n][k / group]. Non-owning.
struct Int4Tensor {
  std::string name;  // name of the layer, for messages
  Int4Layout layout = Int4Layout::awq_gemm;
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::int64_t group = 0;  // divides `in`
  std::int64_t first = 0;  // row of the tensors that is row 0, for a layer that is a range of rows
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* zeros = nullptr;  // null: symmetric, every zero point is 8
  bool twos_complement = false;   // codes are -8..7 (Quark's int4): code ^ 8 is unsigned
  bool zeros_less_one = false;    // words of zeros are stored less 0x11111111 (GPTQ's first version)
  std::shared_ptr<const std::vector<std::int64_t>> order = {};  // the stored row of each of `out` rows; null: in order
};

/// A linear layer [out, in] of a quantized checkpoint: floating point or 4-bit.
using LinearSource = std::variant<Tensor, Int4Tensor>;

inline std::int64_t out_features(const LinearSource& source) {
  const auto* int4 = std::get_if<Int4Tensor>(&source);
  return int4 ? int4->out : std::get<Tensor>(source).shape.at(0);
}

inline std::int64_t in_features(const LinearSource& source) {
  const auto* int4 = std::get_if<Int4Tensor>(&source);
  return int4 ? int4->in : std::get<Tensor>(source).shape.at(1);
}

inline LinearSource rows_of(const LinearSource& source, std::int64_t first, std::int64_t count) {
  const auto* int4 = std::get_if<Int4Tensor>(&source);
  if (int4 == nullptr) return rows_of(std::get<Tensor>(source), first, count);
  Int4Tensor part = *int4;
  part.first += first;
  part.out = count;
  return part;
}

}}
