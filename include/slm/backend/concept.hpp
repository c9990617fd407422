// Backend: the concept of a device, with storage and the operations of a step.
//
// Each operation is one parallel region on a CPU and at most one or two kernel launches on a GPU. Rows are tokens of
// any sequences. A row's result must depend on its own sequence only: a batch gives the same bits as its sequences
// alone, and verifying K+1 tokens the same bits as K+1 single steps.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "slm/backend/plan.hpp"
#include "slm/core/architecture.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm { inline namespace v0_1 {

/// A norm over the width of a row, followed by * weight + bias if present.
struct Norm {
  const float* weight = nullptr;  // [width], in device memory; null: none
  float epsilon = 0;
  const float* bias = nullptr;  // [width], in device memory; null: none
  NormKind kind = NormKind::rms;
};

/// Rotary position embedding. Dimension i of a head rotates with i + width / 2, or 2i with 2i + 1 if `pairs`.
struct Rope {
  const float* inverse_frequency[2] = {};  // [width / 2] each, in device memory; null: no rotation. The second:
                                           // LongRoPE's long factors; PlanSequence::rope selects
  int width = 0;                           // leading dimensions of a head that are rotated; 0: all
  float factor = 1;                        // factor of cosines and sines
  bool pairs = false;

  int rotating(int head_dim) const { return inverse_frequency[0] == nullptr ? 0 : width != 0 ? width : head_dim; }
};

/// Processing of queries, keys and values between projection and rotation.
struct QkvShaping {
  float clip = 0;             // clamp to [-clip, clip]; 0: off
  bool clips_normed = false;  // queries and keys are clamped after a norm of kind `whole`; only where mixtures run
  QkNorm norm = QkNorm::none;
  Norm query = {};  // weights [head_dim] for per_head and rotated, else [heads * head_dim] or [kv_heads * head_dim]
  Norm key = {};
  Norm value = {.kind = NormKind::none};  // of each head; only where ShapesLayers

  bool per_head() const { return norm != QkNorm::none && norm != QkNorm::whole; }
  /// The norm of one head, if heads are normalised separately.
  Norm of_head(Norm all, int head, int dim) const {
    if (norm == QkNorm::own_weights && all.weight != nullptr) all.weight += std::int64_t{head} * dim;
    return all;
  }
};

/// Conversion of scores to attention weights.
struct Attention {
  float scale = 0;                // factor of q . k; 0: 1 / sqrt(head_dim)
  int window = 0;                 // position i attends to j with i - window < j <= i; 0: all j <= i
  const float* slopes = nullptr;  // [heads.query], in device memory: ALiBi adds slope * (j - i) to scores; null: none
  const float* sinks =
      nullptr;            // [heads.query], in device memory: a score of a head whose weight is dropped; null: none
  float cap = 0;          // scaled scores become cap * tanh(score / cap), before ALiBi; 0: off
  float temperature = 0;  // see ModelSettings
  int temperature_context = 1;

  /// Factor of q . k for the query at a position.
  float scale_at(int position, int dim) const {
    const float all = scale != 0 ? scale : 1.0f / std::sqrt(static_cast<float>(dim));
    if (temperature == 0) return all;
    return all * (1 + temperature * std::log(1 + static_cast<float>(position / temperature_context)));
  }
};

struct Heads {
  int query = 0;
  int kv = 0;   // query head h reads kv head h / (query / kv)
  int dim = 0;  // width of one head
};

/// The parts of q | k | v in a row of `width` numbers: 1, 2 or 3. See ShapesLayers.
constexpr int qkv_parts(std::int64_t width, const Heads& heads) {
  return static_cast<int>(1 + (width / heads.dim - heads.query) / heads.kv);
}

/// A product y = x . weight^T + bias, plus the contributions of the rows' adapters. They are added before further
/// processing.
template <class Matrix>
struct Linear {
  const Matrix& weight;         // [out, in]
  const float* bias = nullptr;  // [out], in device memory; null: none
  int product = -1;             // product number for adapters, see number_of(); -1: no adapter changes it
};

/// The parts of the heads of multiply_heads().
struct HeadProducts {
  std::int64_t width, first;              // of a head of x: its numbers, and the first one of the inputs
  std::int64_t out_width, outputs, kept;  // of a head of out: its numbers, and those of the product and of the copy

  template <class In, class Matrix, class Out>
  HeadProducts(const View<In, 2>& x, const Matrix& weight, int heads, const View<Out, 2>& out)
      : width(x.extent(1) / heads),
        first(width - weight.in),
        out_width(out.extent(1) / heads),
        outputs(weight.out / heads),
        kept(out_width - outputs) {}
};

/// Needed by clang before 17, which does not deduce template arguments of aggregates.
template <class Matrix>
Linear(const Matrix&, const float* = nullptr, int = -1) -> Linear<Matrix>;

/// Number of scratch buffers for a step's activations; most of a model's Activations use one each.
inline constexpr int scratch_buffers = 8;

/// B::Recorded of a device that does not record steps.
struct NothingRecorded {};

/// The operations of one step, in the order of a model. x and similar are [rows(), ...] in device memory.
///   rows()             number of activation rows: the plan's, or more if a device pads them
///   scratch            scratch buffer [rows(), width] per index; lives as long as the step, not cleared
///   scratch_of_outputs    scratch buffer [outputs, width], likewise
///   record             calls body(), the operations of this step, or replays them from `recorded`
///   embed              x [rows, hidden]       table[token] + positions[position + offset]; positions may be null.
///                                             Where ShapesLayers, tokens beyond the table have its first row
///   embed_positions    x [rows, hidden]       table[position + offset]
///   adapt_embedding    x [rows, out]          x += contributions of the rows' adapters to the token embedding
///   qkv                q [rows, heads * dim]  rope(shaping(norm(x) . weight^T + bias)): queries to q, keys and values
///                                             to the pages at the rows' positions; values are only clipped
///   scale              x [rows, hidden]       x *= factor
///   attend             out [rows, heads*dim]  causal softmax(cap(scale q k^T) + ALiBi) v over the window
///   project            x [rows, hidden]       x += factor * (input . weight^T + bias)
///   add                x [rows, hidden]       x += norm(branch); a norm may modify the branch
///   gated_mlp          out [rows, ffn]        activation(gate) * up, the halves of norm(x) . weight^T + bias
///   mlp                out [rows, out]        activation(norm(x) . weight^T + bias) / divisor; divisor may be null
///   normalize          x [rows, hidden]       x = norm(x)
///   select             out [outputs, hidden]  x[outputs[i]]
///   logits             out [outputs, vocab]   activation(norm(x) . weight^T + bias) of selected rows, in host memory
///   read               out [outputs, width]   selected rows, in host memory
/// If B::chooses, a step also has, for use in record():
///   choose             chooses a token for each selected row by its logits and the plan's draws. With the plan's masks
///                      it is called after record(), and calls before_masks after all else was submitted
///   advance            continues with the output rows: each has the token just chosen, at the next position
///   chosen             out [steps, outputs]   after record(); no_token where a row of logits was invalid
template <class Step, class B>
concept StepOf = requires(Step& step, const typename B::template Matrix<Fp32>& matrix, typename B::Recorded& recorded,
                          Linear<typename B::template Matrix<Fp32>> linear, int number, std::int64_t width,
                          const float* divisor, Norm norm, Rope rope, Heads heads, QkvShaping shaping, KvLayer layer,
                          Attention attention, Activation activation, float factor, View<float, 2> host_rows,
                          View<const float, 2> table, View<typename B::Activation, 2> rows,
                          View<const typename B::Activation, 2> const_rows, void (*body)()) {
  { step.rows() } -> std::same_as<int>;
  { step.scratch(number, width) } -> std::same_as<View<typename B::Activation, 2>>;
  { step.scratch_of_outputs(number, width) } -> std::same_as<View<typename B::Activation, 2>>;
  step.record(recorded, body);
  step.embed(matrix, rows, table, number);
  step.embed_positions(matrix, number, rows);
  step.adapt_embedding(rows);
  step.qkv(const_rows, norm, linear, rope, heads, layer, rows, shaping);
  step.attend(const_rows, heads, layer, rows, attention);
  step.scale(rows, factor);
  step.project(const_rows, linear, rows, factor);
  step.add(rows, norm, rows);
  step.gated_mlp(const_rows, norm, linear, rows, activation);
  step.mlp(const_rows, norm, linear, activation, divisor, rows);
  step.normalize(rows, norm);
  step.select(const_rows, rows);
  step.logits(const_rows, norm, linear, host_rows, activation);
  step.read(const_rows, host_rows);
};

/// A step of a backend that samples tokens on the device.
template <class Step>
concept ChoosingStep = requires(Step& step, std::span<Token> out) {
  step.advance();
  step.chosen(out);
};

/// A step of layers whose shapes differ (LayerShapes). The product of qkv may have the rows of queries and keys only,
/// whose values are the keys before norm and rotation, or of queries only, which read keys and values of another layer.
///   multiply_rows      x [rows, width]        x *= factors; with a stride of 0, one row is that of all
template <class Step>
concept ShapesLayers = requires(Step& step, typename Step::Rows rows) {
  step.multiply_rows(rows, rows);
};

/// A step of latent attention (LatentAttention). Keys and values are the same rows of a page.
///   multiply_heads     out [rows, heads * n]  x [rows, heads * m], weight [heads * outputs, inputs]: the last
///                                             `outputs` numbers of a head of out are the product of the head's part
///                                             of weight and the last `inputs` numbers of the head of x. Other
///                                             numbers of the head of out are copies of those before the inputs
///                                             in x
template <class B>
concept AttendsLatents = requires(B device, const StepPlan& plan, const typename B::template Matrix<Fp32>& matrix,
                                  View<typename B::Activation, 2> rows, int heads) {
  device.begin(plan).multiply_heads(rows, matrix, heads, rows);
};

/// A step of residual streams. `streams` are [count * rows, hidden]: the rows of the first stream, then those of the
/// second one, and so on.
///   copy_rows          to [rows, width]       to = x
///   match_rows         x [rows, width]        x *= rms(like) / max(rms(x), sqrt(1e-5)), where rms is the root of a
///                                             row's mean square
///   mix_streams        streams, weights [rows, count * count]   stream j += sum over i of weights[j * count + i] *
///                                             stream i
///   correct_streams    streams, factors [rows, count], x [rows, hidden]   stream j += (1 + factors[j]) *
///                                             (x - stream 0)
///   gate_some          out [rows, ffn]        activation(max(gate - mean - cutoff * deviation, 0)) * up, from
///                                             gate | up [rows, 2 * ffn]; mean and deviation are those of the gates
template <class B>
concept MixesStreams = requires(B device, const StepPlan& plan, View<typename B::Activation, 2> rows,
                                Activation activation, float cutoff) {
  device.begin(plan).copy_rows(rows, rows);
  device.begin(plan).match_rows(rows, rows);
  device.begin(plan).mix_streams(rows, rows);
  device.begin(plan).correct_streams(rows, rows, rows);
  device.begin(plan).gate_some(rows, cutoff, activation, rows);
};

/// Copies of a backend share the device.
///   Buffer<T>          owns device memory: data(), size(); zeroed by allocate().
///   Matrix<Format>     a weight [out, in] in the backend's layout, made by pack(); `out` and `in` are its extents.
///                      bytes(): bytes that one product reads. pack() stacks the rows of its sources: {q, k, v} is
///                      one matrix. It may refer to the sources' bytes, which must then outlive it.
///   kv_formats         supported KV cache formats; the first is the default
///   Recorded           a model's recorded steps on the device
///   own_memory         whether the device has memory separate from the host's
///   place(adapter)     copies a host adapter to device memory; plans accept only placed adapters
///   begin(plan)        starts a step, which owns the device until its destruction. At most max_rows rows per step.
///   copy, read, write  bytes of device memory: to other device memory, to the host, from the host
template <class B>
concept Backend = std::copyable<B> &&
    requires(B device, std::span<const Tensor> tensors, std::size_t count,
             const typename B::template Matrix<Fp32>& weight, const float* host, std::byte* bytes,
             const std::byte* const_bytes, const Adapter& adapter, const StepPlan& plan) {
  typename B::Recorded;
  { B::kv_formats[0] } -> std::convertible_to<KvFormat>;
  { B::name } -> std::convertible_to<std::string>;
  { B::max_rows } -> std::convertible_to<int>;
  { B::chooses } -> std::convertible_to<bool>;
  { B::own_memory } -> std::convertible_to<bool>;
  { device.template allocate<float>(count) } -> std::same_as<typename B::template Buffer<float>>;
  { device.upload(host, count) } -> std::same_as<typename B::template Buffer<float>>;
  { device.template pack<Fp32>(tensors) } -> std::same_as<typename B::template Matrix<Fp32>>;
  { weight.out } -> std::convertible_to<std::int64_t>;
  { weight.in } -> std::convertible_to<std::int64_t>;
  { weight.bytes() } -> std::convertible_to<std::int64_t>;
  { device.place(adapter) } -> std::same_as<Adapter>;
  device.copy(bytes, const_bytes, count);
  device.read(bytes, const_bytes, count);
  device.write(bytes, const_bytes, count);
  { device.begin(plan) } -> StepOf<B>;
  requires !B::chooses || ChoosingStep<decltype(device.begin(plan))>;
};

/// A backend whose steps are driven by a remote rank. take(plan) runs this process's part of a step.
template <class B>
concept FollowsSteps = Backend<B> && requires(B device, std::function<void(const StepPlan&)> take) {
  device.on_step(take);
};

}}
