// GpuStep: the operations of one step as kernel launches.
//
// A layer is five launches: queries, keys and values; attention; its projection; gated MLP; its projection. Shapes
// whose heads or gates do not fill whole tiles need two launches per operation. Products of many rows need one more
// launch before, and so does each product of a step with adapters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/attend.hpp"
#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/low_rank.hpp"
#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/steps/device_state.hpp"
#include "slm/backend/gpu/steps/expert_step.hpp"
#include "slm/backend/gpu/steps/latent_step.hpp"
#include "slm/backend/gpu/steps/recurrent_step.hpp"
#include "slm/backend/gpu/steps/row_operations.hpp"
#include "slm/backend/gpu/steps/step_arguments.hpp"
#include "slm/backend/gpu/steps/step_graphs.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Owns the device until destroyed. Rows are padded to a shape that may be recorded. Members: the concept StepOf.
template <class State>
class GpuStep : public RowOperations<GpuStep<State>> {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;
  static constexpr bool shares_experts = true;

  GpuStep(std::shared_ptr<State> state, const StepPlan& plan)
      : state_(std::move(state)), lock_(state_->mutex), plan_(plan) {
    StepShape shape = StepShape::of(plan_, State::most_recorded_rows, 0);
    if (state_->upload.reserve(shape, plan_.pages.size(), state_->stream)) ++state_->generation;
    state_->grow(state_->chosen, std::int64_t{shape.steps} * shape.outputs);
    if (shape.adapted) state_->reserve_adapters();
    shape.generation = state_->generation;
    shape_ = shape;
    state_->upload.send(plan_, shape_, state_->stream);
    on_device_ = state_->upload.place(shape_);
    go_back();
  }

  int rows() const { return static_cast<int>(rows_.size); }
  /// As kernels access them.
  Memory<const StepRow> step_rows() const { return rows_; }
  Rows scratch(int index, std::int64_t width) { return scratch_of(index, rows(), width); }
  Rows scratch_of_outputs(int index, std::int64_t width) { return scratch_of(index, shape_.outputs, width); }

  template <class Body>
  void record(StepGraphs<typename State::Device>& recorded, Body&& body) {
    if (shape_.recordable) {
      recorded.run(shape_, *state_, [&] { go_back(), body(); });
    } else {
      body();
    }
    go_back();
  }

  /// own: with a table distributed over ranks, only this rank's rows are written.
  template <class Matrix>
  void embed(const Matrix& table, Rows x, ConstRows positions = {}, int offset = 0, const OwnRows& own = {}) {
    take_rows(table, x, positions, {offset, false}, own);
  }

  template <class Matrix>
  void embed_positions(const Matrix& table, int offset, Rows x, const OwnRows& own = {}) {
    take_rows(table, x, {}, {offset, true}, own);
  }

  void adapt_embedding(Rows x) {
    const int width = static_cast<int>(x.extent(1)), count = static_cast<int>(x.extent(0));
    if (shape_.adapted) launch<AdaptEmbedding>({.rows = rows_, .x = memory(x), .width = width, .count = count});
  }

  template <class Matrix>
  void qkv(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rope rope, Heads heads, KvLayer layer, Rows q,
           QkvShaping shaping = {}) {
    const int rotating = rope.rotating(heads.dim);
    const bool whole_tiles = rotating == 0 || (rotating % 32 == 0 && heads.dim % tile_height == 0 && !rope.pairs);
    const bool all_parts = qkv_parts(linear.weight.out, heads) == 3 && shaping.value.kind == NormKind::none;
    if (shaping.norm == QkNorm::none && whole_tiles && all_parts && plan_.format != KvFormat::int8) {
      Panels panels{.tiles = linear.weight.tiles().tiles()};
      if (rotating != 0) {
        panels.groups = heads.query + heads.kv;
        panels.group_tiles = heads.dim / tile_height;
        panels.pairs = rotating / 2 / tile_height;
        panels.tail = panels.groups * panels.group_tiles;
      }
      QkvArgs to = qkv_args(pages(heads, layer), rows_, rope, heads, q, shaping);
      to.bias = memory(linear.bias, linear.weight.out);
      return product<QueriesKeysValues>(linear, x, norm, panels, to);
    }
    finish_qkv(stored(x, norm, linear), rope, heads, layer, q, shaping);
  }

  /// Finishes qkv after its product: projected [rows, q | k | v]; q may be its first columns.
  void finish_qkv(Rows projected, Rope rope, Heads heads, KvLayer layer, Rows q, QkvShaping shaping = {}) {
    const QkvArgs to = qkv_args(pages(heads, layer), rows_, rope, heads, q, shaping);
    const ShapeQkvArgs args = shape_qkv_args(projected, to, heads, shaping);
    if (shaping.norm != QkNorm::rotated) return launch<ShapeQkv>(args);
    launch<ShapeRotatedQkv>(args);
  }

  void attend(ConstRows q, Heads heads, KvLayer layer, Rows out, Attention attention = {}) {
    State::check(heads);
    constexpr float log2e = 1.44269504088896341f;
    AttentionArgs args{.q = memory(q),
                       .pages = pages(heads, layer),
                       .out = memory(out),
                       .rows = rows_,
                       .sequences = advanced_ ? Memory<const StepSequence>{} : on_device_.sequences,
                       .slopes = memory(attention.slopes, heads.query),
                       .sinks = memory(attention.sinks, heads.query),
                       .partial = {},
                       .tickets = {},
                       .count = rows(),
                       .query = heads.query,
                       .kv = heads.kv,
                       .dim = heads.dim,
                       .q_stride = static_cast<int>(q.stride(0)),
                       .group = heads.query / heads.kv,
                       .window = attention.window,
                       .scale = attention.scale_at(0, heads.dim) * log2e,
                       .cap = attention.cap * log2e,
                       .temperature = attention.temperature,
                       .temperature_context = attention.temperature_context,
                       .chunks = 0};
    visit(plan_.format, [&]<class Element>(Element) {
      if constexpr (!std::is_same_v<Element, float>) {  // no pool of this backend uses it
        if (heads.dim <= 64) {
          attend_with<64, Element>(args);
        } else if (heads.dim <= 128) {
          attend_with<128, Element>(args);
        } else if (heads.dim <= 256) {
          attend_with<256, Element>(args);
        } else {
          attend_with<most_head_dim, Element>(args);
        }
      }
    });
  }

  template <class Matrix>
  void project(ConstRows input, const Linear<Matrix>& linear, Rows x, float factor = 1) {
    product<AddToRows>(linear, input, Norm{.kind = NormKind::none}, neighbours(linear),
                       {.x = memory(x),
                        .bias = memory(linear.bias, linear.weight.out),
                        .width = static_cast<int>(linear.weight.out),
                        .factor = factor});
  }

  template <class Matrix>
  void gated_mlp(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rows out,
                 Activation activation = ActivationKind::silu) {
    const int width = static_cast<int>(linear.weight.out / 2);
    if (width % tile_height == 0) {
      const int pairs = width / tile_height;
      return product<Gated>(
          linear, x, norm,
          {.groups = 1, .group_tiles = 2 * pairs, .pairs = pairs, .tail = 2 * pairs, .tiles = 2 * pairs},
          {.out = memory(out),
           .bias = memory(linear.bias, linear.weight.out),
           .width = width,
           .activation = activation});
    }
    const ConstRows projected = stored(x, norm, linear);
    launch<GateRows>({memory(projected), memory(out), width, static_cast<int>(x.extent(0)), activation});
  }

  template <class Matrix>
  void mlp(ConstRows x, Norm norm, const Linear<Matrix>& linear, Activation activation, const float* divisor,
           Rows out) {
    store(x, norm, linear, out, activation, divisor);
  }

  /// See MixesExperts and SharesExperts.
  template <class Matrix, class Router, class Shares = WholeExperts>
  void add_mixture(ConstRows x, Norm norm, const Mixture<Matrix, Router>& mixture, Rows to, float factor = 1,
                   const Shares& shares = {}) {
    const gpu::Rows in{memory(x), static_cast<int>(x.extent(1)), static_cast<int>(x.extent(0))};
    const ExpertMemory parts = state_->expert_memory(mixture.widths(), in.count);
    store(x, mixture.router_norm.value_or(norm), Linear{held_of(mixture.router), mixture.router_bias}, parts.logits);
    if (mixture.shared_gate != nullptr) store(x, norm, Linear{held_of(*mixture.shared_gate)}, parts.shared_gate);
    run_experts(*state_, mixture, parts, in, norm_args(norm, in.width), rows_, memory(to), factor, shares);
  }

  /// See AttendsLatents.
  template <class Matrix>
  void multiply_heads(ConstRows x, const Matrix& weight, int heads, Rows out) {
    run_head_products(*state_, x, weight, heads, out);
  }

  /// See RecurrentStep.
  void recur(Rows projected, const Recurrence& recurrence, std::int64_t state, Rows out) {
    run_recurrence(*state_, recurrence_args(recurrence, on_device_, shape_.sequences, projected, state, out));
  }

  void select(ConstRows x, Rows out) {
    const int width = static_cast<int>(out.extent(1)), count = static_cast<int>(out.extent(0));
    launch<SelectRows>({.x = memory(x), .outputs = outputs(), .out = memory(out), .width = width, .count = count});
  }

  /// Waits for the device.
  template <class Matrix>
  void logits(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rows out, Activation activation = {}) {
    const Rows on_device = device_logits(ConstRows{x.data, out.extent(0), x.extent(1)}, norm, linear, activation);
    read(on_device, out);
  }

  /// Waits for the device.
  void read(ConstRows x, Rows out) {
    state_->landing.read(state_->stream, out.data, x.data, static_cast<std::size_t>(out.size()) * sizeof(float));
  }

  template <class Matrix>
  void choose(ConstRows x, Norm norm, const Linear<Matrix>& linear, Activation activation = {}) {
    const int count = shape_.outputs;
    const Rows on_device = device_logits(ConstRows{x.data, count, x.extent(1)}, norm, linear, activation);
    if (!plan_.masks.empty()) launch<Forbid>(state_->masks.send(plan_, memory(on_device), count, state_->stream));
    state_->chooser.choose(*state_, memory(ConstRows(on_device)),
                           {.rows = rows_,
                            .outputs = outputs(),
                            .draws = on_device_.draws,
                            .next = turn_ + 1 < shape_.steps ? on_device_.next : Memory<StepRow>{}},
                           hardest_of(plan_.draws), {state_->chosen.data() + std::int64_t{turn_} * count, count},
                           state_->tickets.memory());
  }

  /// choose() has already written the rows.
  void advance() {
    ++turn_;
    advanced_ = true;
    rows_ = on_device_.next;
  }

  /// Waits for the device.
  void chosen(std::span<Token> out) {
    const auto wide = static_cast<std::size_t>(shape_.outputs), count = plan_.outputs.size();
    std::vector<Token> filled_up(wide == count ? 0 : wide * static_cast<std::size_t>(shape_.steps));
    const std::span<Token> to = filled_up.empty() ? out : std::span<Token>(filled_up);
    state_->landing.read(state_->stream, to.data(), state_->chosen.data(), to.size_bytes());
    for (std::size_t i = 0; i < filled_up.size() / wide; ++i) std::copy_n(&filled_up[i * wide], count, &out[i * count]);
  }

 private:
  friend class RowOperations<GpuStep>;

  template <class K>
  void launch(const typename K::Args& args) {
    state_->template launch<K>(args);
  }

  /// Returns to the first step, where a replayed record also ends.
  void go_back() {
    turn_ = 0;
    advanced_ = false;
    rows_ = on_device_.rows;
  }

  /// After the first step of a chain, the outputs are the rows.
  Memory<const int> outputs() const { return advanced_ ? Memory<const int>{} : on_device_.outputs; }

  Rows scratch_of(int index, std::int64_t count, std::int64_t width) {
    return {state_->step_rows(index, count * width), count, width};
  }

  KvPages pages(const Heads& heads, const KvLayer& layer) const {
    return kv_pages(on_device_.tables, plan_.format, heads, layer);
  }

  template <class Matrix>
  void take_rows(const Matrix& table, Rows x, ConstRows positions, const TableRows& which, const OwnRows& own) {
    table.visit([&]<class Format>(Format) {
      const int count = static_cast<int>(x.extent(0));
      launch<Embed<Format>>({table.tiles(), rows_, memory(positions), memory(x), which, own, count});
    });
  }

  template <class Epilogue, class Matrix>
  void product(const Linear<Matrix>& linear, ConstRows x, const Norm& norm, const Panels& panels,
               const typename Epilogue::Args& epilogue) {
    const int rows = static_cast<int>(x.extent(0));
    const gpu::Rows input{memory(x), static_cast<int>(x.extent(1)), rows};
    const NormArgs how = norm_args(norm, x.extent(1));
    const LowRankRows low_rank = shrink(linear.product, input, how);
    linear.weight.visit([&]<class Format>(Format) {
      ProductArgs<Format, Epilogue> args{.weight = linear.weight.tiles(),
                                         .panels = panels,
                                         .x = input,
                                         .norm = how,
                                         .staged = {},
                                         .low_rank = low_rank,
                                         .epilogue = epilogue};
      if (rows <= state_->options.most_vector_rows) return launch<ProductVectors<Format, Epilogue>>(args);
      const std::int64_t words = StagedSlice<Format>::words_of(rows, args.weight.steps);
      const Memory<std::uint32_t> staged{state_->grow(state_->staged, words), words};
      launch<StageRows<Format>>({input, how, staged, args.weight.steps, args.weight.block_shift});
      args.staged = staged;
      launch<ProductTiles<Format, Epilogue>>(args);
    });
  }

  /// Computes adapter contributions to a product of x, whose rows are those of the step, or its outputs at the end of a
  /// model.
  LowRankRows shrink(int product, const gpu::Rows& x, const NormArgs& norm) {
    if (!shape_.adapted || product < 0) return {};
    const bool last = product == number_of(AdaptedProduct::head) || product == number_of(AdaptedProduct::project_out);
    const Memory<Changes> changes = state_->changes.memory();
    const Memory<float> t = state_->low_rank.memory();
    launch<Shrink>({x, norm, rows_, last ? outputs() : Memory<const int>{}, changes, t, product});
    return {changes, t};
  }

  /// out = activation(norm(x) . weight^T + bias) / divisor
  template <class Matrix>
  void store(ConstRows x, const Norm& norm, const Linear<Matrix>& linear, Rows out, const Activation& activation = {},
             const float* divisor = nullptr) {
    product<Activated>(linear, x, norm, neighbours(linear),
                       {.out = memory(out),
                        .bias = memory(linear.bias, linear.weight.out),
                        .divisor = memory(divisor, linear.weight.out),
                        .width = static_cast<int>(linear.weight.out),
                        .stride = static_cast<int>(out.stride(0)),
                        .activation = activation});
  }

  /// Stores a product that is finished by a later kernel.
  template <class Matrix>
  Rows stored(ConstRows x, const Norm& norm, const Linear<Matrix>& linear) {
    const std::int64_t rows = x.extent(0), width = linear.weight.out;
    const Rows projected{state_->grow(state_->scratch, rows * width), rows, width};
    store(x, norm, linear, projected);
    return projected;
  }

  template <class Matrix>
  Rows device_logits(ConstRows x, const Norm& norm, const Linear<Matrix>& linear, const Activation& activation) {
    const std::int64_t rows = x.extent(0), width = linear.weight.out;
    const Rows on_device{state_->grow(state_->logits, rows * width), rows, width};
    store(x, norm, linear, on_device, activation);
    return on_device;
  }

  template <int Dim, class Element>
  void attend_with(AttentionArgs& args) {
    if constexpr (Dim <= 256) {
      if (args.cap == 0 && args.temperature == 0)
        return attend_by<Attend<Dim, 16, Element>, Attend<Dim, Dim <= 128 ? 32 : 16, Element>>(args);
    }
    attend_by<AttendAdjusted<Dim, Element>, AttendAdjusted<Dim, Element>>(args);
  }

  template <class Few, class Many>
  void attend_by(AttentionArgs& args) {
    constexpr int few = 16;
    int chunks = shape_.chunks;
    if (args.window != 0) chunks = std::min(chunks, (args.window + QueryTiles(args, few).rows - 2) / chunk + 2);
    const std::int64_t partial = State::partial_size(args.count, {args.query, args.kv, args.dim}, chunks);
    const int blocks = Few::blocks(args) * args.kv;
    const int wanted =
        state_->options.split_blocks != 0 ? state_->options.split_blocks : 4 * state_->runtime.info().multiprocessors;
    if (chunks > 1 && blocks < wanted && blocks <= State::most_tickets && partial <= State::most_partial) {
      args.chunks = chunks;
      args.partial = {state_->grow(state_->partial, partial), partial};
      args.tickets = state_->tickets.memory();
      return launch<Few>(args);
    }
    const int longest = advanced_ ? 1 : shape_.longest;
    if (longest * args.group <= few) return launch<Few>(args);
    launch<Many>(args);
  }

  std::shared_ptr<State> state_;
  std::unique_lock<std::mutex> lock_;
  StepPlan plan_;
  StepShape shape_;
  DevicePlan on_device_;
  Memory<const StepRow> rows_;  // of the current step of a chain
  int turn_ = 0;                // index of that step
  bool advanced_ = false;
};

}}}
