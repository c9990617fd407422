// What hardware must do for a model: storage, and eight operations. Nothing else.
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

#include "slm/core/architecture.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/formats/format.hpp"

namespace slm {

/// A norm over the width of a row, then * weight + bias where those are.
struct Norm {
  const float* weight = nullptr;  // [width], in device memory; null: none
  float epsilon = 0;
  const float* bias = nullptr;  // [width], in device memory; null: none
  NormKind kind = NormKind::rms;
};

/// Rotary embedding in the rotate-half layout of Hugging Face checkpoints.
struct Rope {
  const float* inverse_frequency = nullptr;  // [width / 2], in device memory; null: nothing rotates
  int width = 0;                             // leading dimensions of a head that rotate; 0: all
  float factor = 1;                          // of cosines and sines

  int rotating(int head_dim) const { return inverse_frequency == nullptr ? 0 : width != 0 ? width : head_dim; }
};

/// What happens to queries, keys and values between projection and rotation.
struct QkvShaping {
  float clip = 0;  // cut to [-clip, clip]; 0: not
  QkNorm norm = QkNorm::none;
  Norm query = {};  // weights [head_dim] for per_head, [heads * head_dim] or [kv_heads * head_dim] for whole
  Norm key = {};
};

/// How scores become weights.
struct Attention {
  float scale = 0;                // of q . k; 0: 1 / sqrt(head_dim)
  int window = 0;                 // position i sees j with i - window < j <= i; 0: all j <= i
  const float* slopes = nullptr;  // [heads.query], in device memory: ALiBi adds slope * (j - i) to scores; null: none
};

struct Heads {
  int query = 0;
  int kv = 0;   // query head h reads kv head h / (query / kv)
  int dim = 0;  // width of one head
};

/// A cache that is shorter than the context is a ring: its capacity is a multiple of this, so that positions which
/// share position / ring_block lie in a row.
constexpr int ring_block = 64;

/// The part of the KV cache that belongs to one layer. Position p lies at p % capacity.
template <class T>
struct KvLayer {
  View<T, 3> keys;    // [kv_heads, capacity, head_dim]
  View<T, 3> values;  // [kv_heads, capacity, head_dim]
};

/// Row r of a step stands at sequence position `position + r`.
///   Buffer<T>          owns device memory: data(), size(); zero after allocate().
///   Matrix<Format>     a weight [out, in] in the backend's own order, made by pack(); `out` and `in` are its extents.
///                      bytes() is what one product reads of it. pack() stacks the rows of its sources: {q, k, v} is
///                      one matrix. It may refer to the sources' bytes instead of copying them: they outlive it.
///   embed      x [rows, hidden]       table[tokens[r]] + positions[position + r]; positions [all, hidden] may be null
///   qkv        q [rows, heads * dim]  rope(shaping(norm(x) . weight^T + bias)): queries to q, keys and values to the
///                                     cache at the rows' positions; values are clipped only
///   attend     out [rows, heads*dim]  causal softmax(scale q k^T + ALiBi) v over what the window leaves
///   project    x [rows, hidden]       x += input . weight^T + bias
///   gated_mlp  out [rows, ffn]        activation(gate) * up, the halves of norm(x) . weight^T + bias
///   mlp        out [rows, out]        activation(norm(x) . weight^T + bias) / divisor; divisor [out] may be null
///   normalize  x [rows, hidden]       x = norm(x)
///   logits     out [rows, vocab]      norm(x) . weight^T + bias, back in host memory
/// A null bias means none; a bias has `weight.out` elements. A device that records steps, and chooses tokens where the
/// logits are, has Steps, step(), choosing_steps() and choose() besides: see gpu/gpu.hpp.
template <class B>
concept Backend = std::copyable<B> &&
    requires(B device, std::span<const Tensor> tensors, std::size_t count,
             const typename B::template Matrix<Fp32>& weight, std::span<const Token> tokens, int position,
             const float* bias, const float* host, Norm norm, Rope rope, Heads heads, QkvShaping shaping,
             Attention attention, ActivationKind activation, View<float, 2> host_rows, View<const float, 2> host_table,
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
  device.embed(weight, tokens, rows, host_table, position);
  device.qkv(const_rows, norm, weight, bias, rope, heads, position, rows, kv, shaping);
  device.attend(const_rows, heads, position, kv, rows, attention);
  device.project(const_rows, weight, bias, rows);
  device.gated_mlp(const_rows, norm, weight, bias, rows, activation);
  device.mlp(const_rows, norm, weight, bias, activation, bias, rows);
  device.normalize(rows, norm);
  device.logits(const_rows, norm, weight, host_rows, bias);
};

}  // namespace slm
