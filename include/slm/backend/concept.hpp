// What hardware must do for a Llama-family model: storage, and six operations. Nothing else.
//
// The operations are cut where a device wants to fuse: each is one parallel region on a CPU and at most one or two
// launches on a GPU. Rows are tokens; a row's result must not depend on how many rows are computed beside it, so
// that verifying K+1 tokens gives bit for bit what K+1 single steps give.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/quant/format.hpp"

namespace slm {

/// RMSNorm: x * weight / sqrt(mean(x^2) + epsilon).
struct Norm {
  const float* weight = nullptr;  // [hidden], in device memory
  float epsilon = 0;
};

/// Rotary embedding in the rotate-half layout of Hugging Face checkpoints.
struct Rope {
  const float* inverse_frequency = nullptr;  // [head_dim / 2], in device memory
};

struct Heads {
  int query = 0;
  int kv = 0;   // query head h reads kv head h / (query / kv)
  int dim = 0;  // width of one head
};

/// The part of the KV cache that belongs to one layer.
template <class T>
struct KvLayer {
  View<T, 3> keys;    // [kv_heads, context, head_dim]
  View<T, 3> values;  // [kv_heads, context, head_dim]
};

/// Row r of a step stands at sequence position `position + r`.
///   Buffer<T>          owns device memory: data(), size(); zero after allocate().
///   Matrix<Format>     a weight [out, in] in the backend's own order, made by pack(); `out` and `in` are its extents.
///                      bytes() is what one product reads of it. pack() stacks the rows of its sources: {q, k, v} is
///                      one matrix. It may refer to the sources' bytes instead of copying them: they outlive it.
///   embed              x[r] = table[tokens[r]]                                                   x [rows, hidden]
///   qkv                rope(norm(x) . weight^T + bias): queries to q, keys and values to the cache
///                      at the rows' positions                                                    q [rows, heads * dim]
///   attend             causal softmax(q k^T / sqrt(dim)) v over positions 0..position+r          out [rows, heads *
///   dim] project            x += input . weight^T + bias                                              x [rows, hidden]
///   gated_mlp          silu(gate) * up, gate and up being the halves of norm(x) . weight^T + bias
///                                                                                                out [rows, ffn]
///   logits             norm(x) . weight^T, back in host memory                                   out [rows, vocab]
/// A null bias means none; a bias has `weight.out` elements.
template <class B>
concept Backend = std::copyable<B> &&
    requires(B device, std::span<const Tensor> tensors, std::size_t count,
             const typename B::template Matrix<Fp32>& weight, std::span<const Token> tokens, int position,
             const float* bias, const float* host, Norm norm, Rope rope, Heads heads, View<float, 2> host_rows,
             View<typename B::Activation, 2> rows, View<const typename B::Activation, 2> const_rows,
             KvLayer<typename B::KvElement> kv) {
  { B::name } -> std::convertible_to<std::string>;
  { B::max_rows } -> std::convertible_to<int>;  // most rows of one call; longer prompts come in pieces
  { device.template allocate<float>(count) } -> std::same_as<typename B::template Buffer<float>>;
  { device.upload(host, count) } -> std::same_as<typename B::template Buffer<float>>;
  { device.template pack<Fp32>(tensors) } -> std::same_as<typename B::template Matrix<Fp32>>;
  { weight.out } -> std::convertible_to<std::int64_t>;
  { weight.in } -> std::convertible_to<std::int64_t>;
  { weight.bytes() } -> std::convertible_to<std::int64_t>;
  device.embed(weight, tokens, rows);
  device.qkv(const_rows, norm, weight, bias, rope, heads, position, rows, kv);
  device.attend(const_rows, heads, position, kv, rows);
  device.project(const_rows, weight, bias, rows);
  device.gated_mlp(const_rows, norm, weight, bias, rows);
  device.logits(const_rows, norm, weight, host_rows);
};

}  // namespace slm
