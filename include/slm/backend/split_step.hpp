// SplitStep: a rank's part of the operations of one step. The ranks of a stage compute their rows of every product and
// their attention heads, and gather the others' results. The residual stream passes from stage to stage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/expert_shares.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/backend/recurrence.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/backend/shared_pages.hpp"
#include "slm/backend/split_commands.hpp"
#include "slm/backend/split_state.hpp"
#include "slm/ranks/grid.hpp"

namespace slm { inline namespace v0_1 {

/// A step that can finish qkv after a separate product.
///   finish_qkv   q [rows, heads * dim]   from projected [rows, q | k | v], modified in place: clip, norms, RoPE, pages
template <class Step, class B>
concept FinishesQkv = requires(Step& step, View<typename B::Activation, 2> rows, Rope rope, Heads heads, KvLayer layer,
                               QkvShaping shaping) {
  step.finish_qkv(rows, rope, heads, layer, rows, shaping);
};

namespace backend {

/// Steps with many rows run in several parts, so that pipeline stages work in parallel. With one stage there is one
/// part. Public members: the operations of the concept StepOf.
template <Backend B, ranks::Communicator C>
class SplitStep {
  using Step = decltype(std::declval<B&>().begin(std::declval<const StepPlan&>()));
  static_assert(FinishesQkv<Step, B>);
  using Shares = decltype(SplitState<B, C>::shares);
  template <class Held>
  using Matrix = SplitMatrix<Held>;

 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  SplitStep(B& device, SplitState<B, C>& state, const StepPlan& plan)
      : device_(device), state_(state), grid_(*state.grid), lock_(state.lock()), whole_(plan) {
    for (const std::byte* page : plan.pages) pages_.push_back(state.pages->own(page));
    for (const std::byte* page : plan.states) states_.push_back(state.pages->own(page));
    take_rows(0, count_of(plan.rows));
    if (state.commands != nullptr) state.commands->send_step(plan);
  }
  ~SplitStep() {  // other ranks wait for the rest of a step that failed here
    if (state_.commands != nullptr && std::uncaught_exceptions() > exceptions_) state_.commands->give_up();
  }
  SplitStep(const SplitStep&) = delete;
  SplitStep& operator=(const SplitStep&) = delete;

  int rows() const { return step_->rows(); }
  Rows scratch(int index, std::int64_t width) {
    if (runs() == 1) return step_->scratch(index, width);
    return shares().scratch(index, count_of(whole_.rows), width).slice(first_, rows());
  }
  Rows scratch_of_outputs(int index, std::int64_t width) { return step_->scratch_of_outputs(index, width); }

  template <class Body>
  void record(typename B::Recorded& recorded, Body&& body) {
    if (runs() == 1) return shares().record(*step_, recorded, body);
    const std::int64_t all = count_of(whole_.rows);
    for (std::int64_t run = 0; run < runs(); ++run) {
      take_rows(run * run_rows, run + 1 < runs() ? (run + 1) * run_rows : all);
      shares().record(*step_, recorded, body);
    }
    const int stage = at_;
    take_rows(0, all);
    at_ = stage;
  }

  template <class Held>
  void embed(const Matrix<Held>& table, Rows x, ConstRows positions = {}, int offset = 0) {
    look_up(table, x, &PlanRow::token, 0,
            [&](const auto&... share) { step_->embed(table.held, x, positions, offset, share...); });
  }

  template <class Held>
  void embed_positions(const Matrix<Held>& table, int offset, Rows x) {
    look_up(table, x, &PlanRow::position, offset,
            [&](const auto&... share) { step_->embed_positions(table.held, offset, x, share...); });
  }

  void adapt_embedding(Rows x) {
    if (is_here()) step_->adapt_embedding(x);
  }

  template <class Held>
  void qkv(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Rope rope, Heads heads, KvLayer layer, Rows q,
           QkvShaping shaping = {}) {
    go_to(linear.weight.stage);
    if (!is_here()) return;
    heads_ = linear.weight.heads;
    keeps_heads_ = linear.weight.kept;
    if (heads_.whole) {
      const Rows projected = shares().scratch(projections, x.extent(0), linear.weight.out);
      mlp(x, norm, linear, ActivationKind::identity, nullptr, projected);
      step_->finish_qkv(projected, rope, heads, own(layer), q, shaping);
    } else if (computes_heads()) {
      const Linear mine{linear.weight.held, own_heads(linear), linear.product};
      shaping.query = shaping.of_head(shaping.query, heads_.queries_of(grid_.lane).first, heads.dim);
      shaping.key = shaping.of_head(shaping.key, heads_.kv_of(grid_.lane).first, heads.dim);
      step_->qkv(x, norm, mine, rope, heads_.of(grid_.lane), own(layer), own_heads(q), shaping);
    }
  }

  /// Finishes a product that every rank of the stage has, of all heads.
  void finish_qkv(Rows projected, Rope rope, Heads heads, KvLayer layer, Rows q, QkvShaping shaping = {}) {
    heads_ = {};
    keeps_heads_ = false;
    if (is_here()) step_->finish_qkv(projected, rope, heads, own(layer), q, shaping);
  }

  /// The weight is whole on every rank of the stage.
  template <class Held>
  void multiply_heads(ConstRows x, const Matrix<Held>& weight, int heads, Rows out) requires AttendsLatents<B> {
    if (is_here()) step_->multiply_heads(x, weight.held, heads, out);
  }

  void attend(ConstRows q, Heads heads, KvLayer layer, Rows out, Attention attention = {}) {
    if (!is_here()) return;
    if (heads_.whole) return step_->attend(q, heads, own(layer), out, attention);
    const Rows mine = keeps_heads_ ? own_heads(out) : shares().mine(out.extent(0), heads_.query.count(grid_.lane));
    for (const float** of_heads : {&attention.slopes, &attention.sinks}) {
      if (*of_heads != nullptr) *of_heads += heads_.queries_of(grid_.lane).first;
    }
    if (computes_heads()) step_->attend(own_heads(q), heads_.of(grid_.lane), own(layer), mine, attention);
    if (!keeps_heads_) shares().gather(heads_.query, 1, mine, out);
  }

  template <class Held>
  void project(ConstRows input, const Linear<Matrix<Held>>& linear, Rows x, float factor = 1) {
    residual_ = x;
    if (linear.weight.inputs.width > 0) return add_up(input, linear, x, factor);
    const RowCut& cut = linear.weight.cut;
    share(linear, cut.parts, x, [&](const auto& held, Rows mine) {
      shares().take_own(cut, x, mine);
      step_->project(input, held, mine, factor);
    });
  }

  /// Every rank chooses the experts of all rows, and computes its rows of each expert's matrices.
  template <class Held, class HeldRouter>
  requires SharesExperts<Step>
  void add_mixture(ConstRows x, Norm norm, const Mixture<Matrix<Held>, Matrix<HeldRouter>>& mixture, Rows to,
                   float factor = 1) {
    go_to(mixture.router.stage);
    residual_ = to;
    if (!is_here()) return;
    step_->add_mixture(x, norm, mixture, to, factor, ExpertShares<Shares>{shares(), grid_.lane});
  }

  template <class Held>
  void gated_mlp(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Rows out,
                 Activation activation = ActivationKind::silu) {
    share(linear, 1, out, [&](const auto& held, Rows mine) { step_->gated_mlp(x, norm, held, mine, activation); });
  }

  template <class Held>
  void mlp(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Activation activation, const float* divisor,
           Rows out) {
    share(linear, linear.weight.cut.parts, out, [&](const auto& held, Rows mine) {
      step_->mlp(x, norm, held, activation, own_of(linear.weight.cut, divisor, divisors), mine);
    });
  }

  /// Every rank of a stage computes the whole recurrence, from its own copy of the states.
  void recur(Rows projected, const Recurrence& recurrence, std::int64_t state, Rows out) requires RecurrentStep<Step> {
    if (is_here()) step_->recur(projected, recurrence, state - bytes_before(whole_.states), out);
  }
  void gate(Rows x, ConstRows by) requires RecurrentStep<Step> {
    if (is_here()) step_->gate(x, by);
  }

  void multiply_rows(Rows x, ConstRows by) requires ShapesLayers<Step> {
    if (is_here()) step_->multiply_rows(x, by);
  }
  void copy_rows(ConstRows x, Rows to) requires MixesStreams<B> {
    if (is_here()) step_->copy_rows(x, to);
  }
  void match_rows(Rows x, ConstRows like) requires MixesStreams<B> {
    if (is_here()) step_->match_rows(x, like);
  }
  void mix_streams(Rows streams, ConstRows weights) requires MixesStreams<B> {
    if (is_here()) step_->mix_streams(streams, weights);
  }
  void correct_streams(Rows streams, ConstRows factors, ConstRows x) requires MixesStreams<B> {
    if (is_here()) step_->correct_streams(streams, factors, x);
  }
  void gate_some(Rows gates, float cutoff, Activation activation, Rows out) requires MixesStreams<B> {
    if (is_here()) step_->gate_some(gates, cutoff, activation, out);
  }

  void scale(Rows x, float factor) {
    if (is_here()) step_->scale(x, factor);
  }
  void add(Rows branch, Norm norm, Rows x) {
    residual_ = x;
    if (is_here()) step_->add(branch, norm, x);
  }
  void normalize(Rows x, Norm norm) {
    if (is_here()) step_->normalize(x, norm);
  }
  void select(ConstRows x, Rows out) {
    if (is_here()) step_->select(x, out);
  }

  template <class Held>
  void logits(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Rows out, Activation activation = {}) {
    const Rows gathered = shares().answers(out);
    share(linear, linear.weight.cut.parts, gathered, [&](const auto& held, Rows mine) {
      if constexpr (B::own_memory) {  // logits() would copy them to the host
        const ConstRows answered{x.data, mine.extent(0), x.extent(1)};
        step_->mlp(answered, norm, held, activation, nullptr, mine);
      } else {
        step_->logits(x, norm, held, mine, activation);
      }
    });
    if (is_here()) shares().bring(gathered, out);
    answer(out);
  }

  void read(ConstRows x, Rows out) {
    shares().finish();
    if (is_here()) step_->read(x, out);
    answer(out);
  }

 private:
  /// rows per part: fewer take as long, since reading the weights dominates
  static constexpr std::int64_t run_rows = 64;

  static std::int64_t count_of(std::span<const PlanRow> rows) { return static_cast<std::int64_t>(rows.size()); }

  std::int64_t runs() const {
    return grid_.stages == 1 ? 1 : std::max<std::int64_t>(1, count_of(whole_.rows) / run_rows);
  }

  /// Restricts the step to these rows; the whole range restores all rows.
  void take_rows(std::int64_t first, std::int64_t last) {
    const bool all = first == 0 && last == count_of(whole_.rows);
    turn_.reset();
    step_.reset();
    first_ = first;
    at_ = 0;
    rows_.assign(whole_.rows.begin() + first, whole_.rows.begin() + last);
    for (PlanRow& row : rows_) row.parent = std::max(-1, row.parent - static_cast<int>(first));
    sequences_.clear();
    for (const PlanSequence& sequence : whole_.sequences) {
      const std::int64_t from = std::max<std::int64_t>(sequence.first_row, first);
      const std::int64_t to = std::min<std::int64_t>(sequence.first_row + sequence.rows, last);
      if (from >= to) continue;
      for (std::int64_t r = from; r < to; ++r)
        rows_[static_cast<std::size_t>(r - first)].sequence = static_cast<int>(sequences_.size());
      sequences_.push_back(sequence);
      sequences_.back().first_row = static_cast<int>(from - first);
      sequences_.back().rows = static_cast<int>(to - from);
      sequences_.back().first_state += static_cast<int>(from - sequence.first_row);
    }
    plan_ = whole_;
    plan_.rows = rows_;
    plan_.sequences = sequences_;
    plan_.pages = pages_;
    plan_.states = states_;
    if (!all) plan_.outputs = {};
    step_.emplace(device_.begin(plan_));
    turn_.emplace(shares());
  }

  /// Whether the rows are on this rank's stage.
  bool is_here() const { return at_ == grid_.stage; }

  /// Sends the residual stream to the stage of the next operation.
  void go_to(int stage) {
    for (; at_ < stage; ++at_) {
      if (at_ == grid_.stage) shares().hand_on(*grid_.next, residual_);
      if (at_ + 1 == grid_.stage) shares().hand_on(*grid_.previous, residual_);
    }
  }

  /// Sends the last stage's results to rank 0.
  void answer(Rows out) {
    const std::span<float> numbers(out.data, static_cast<std::size_t>(out.size()));
    if (grid_.ends) grid_.ends->broadcast(std::as_writable_bytes(numbers), 1);
  }

  /// Indices after the activation buffers.
  enum Scratch { projections = scratch_buffers, biases, divisors };

  /// Bytes of a page before the layers of this rank's stage. pages: some pages of one kind.
  std::int64_t bytes_before(std::span<std::byte* const> pages) const {
    for (const std::byte* page : pages) {
      if (page != nullptr && grid_.stages > 1) return static_cast<std::int64_t>(state_.pages->part_begins(page));
    }
    return 0;
  }

  /// Offsets of a layer in this rank's part of a page.
  KvLayer own(KvLayer layer) const {
    const std::int64_t before = bytes_before(whole_.table(whole_.sequences.front(), layer.kind));
    return heads_.own(grid_.lane, {.kind = layer.kind, .keys = layer.keys - before, .values = layer.values - before});
  }

  /// Whether this rank has heads; surplus ranks do not.
  bool computes_heads() const { return heads_.query.count(grid_.lane) > 0; }

  /// A buffer for all heads, restricted to this rank's heads.
  template <class Number>
  View<Number, 2> own_heads(View<Number, 2> all) const {
    return {all.data, all.extent(0), heads_.query.count(grid_.lane)};
  }
  template <class Held>
  const float* own_heads(const Linear<Matrix<Held>>& linear) {
    if (linear.bias == nullptr) return nullptr;
    return shares().take_own(heads_.rows_of(grid_.lane, qkv_parts(linear.weight.out, heads_.heads)), linear.bias,
                             biases);
  }

  auto& shares() { return state_.shares; }

  /// This rank's elements of a vector with one element per weight row.
  const float* own_of(const RowCut& cut, const float* whole, Scratch index) {
    if (whole == nullptr) return nullptr;
    const Rows own = shares().scratch(index, 1, cut.parts * cut.count(grid_.lane));
    shares().take_own(cut, ConstRows{whole, 1, cut.parts * cut.width}, own);
    return own.data;
  }

  /// out [rows, parts * width]: compute(linear, mine) computes this rank's outputs, mine [rows, parts * its count].
  template <class Held, class Compute>
  void share(const Linear<Matrix<Held>>& linear, int parts, Rows out, Compute compute) {
    go_to(linear.weight.stage);
    if (!is_here()) return;
    const RowCut& cut = linear.weight.cut;
    if (linear.weight.whole) return compute(Linear{linear.weight.held, linear.bias, linear.product}, out);
    const bool kept = linear.weight.kept;
    const std::int64_t own = parts * cut.count(grid_.lane);
    const Rows mine = kept ? Rows{out.data, out.extent(0), own} : shares().mine(out.extent(0), own);
    if (mine.size() > 0) compute(Linear{linear.weight.held, own_of(cut, linear.bias, biases), linear.product}, mine);
    if (!kept) shares().gather(cut, parts, mine, out);
  }

  /// x += factor * (input . weight^T + bias), from each rank's columns of `input`, which are at the beginning of its
  /// buffer.
  template <class Held>
  void add_up(ConstRows input, const Linear<Matrix<Held>>& linear, Rows x, float factor) {
    if (!is_here()) return;
    if constexpr (!B::own_memory) {
      const RowCut& inputs = linear.weight.inputs;
      const ConstRows own{input.data, input.extent(0), inputs.count(grid_.lane)};
      const Rows mine = shares().mine(x.extent(0), own.extent(1) > 0 ? x.extent(1) : 0);
      const Linear<Held> held{linear.weight.held, nullptr, linear.product};
      const Norm none{.kind = NormKind::none};
      if (mine.size() > 0) step_->mlp(own, none, held, ActivationKind::identity, nullptr, mine);
      shares().add(inputs, mine, linear.bias, x, factor);
    }
  }

  /// x = table rows that may be on any rank. take() reads the rows that the plan names by `index`, less the offset.
  template <class Held, class Take>
  void look_up(const Matrix<Held>& table, Rows x, int PlanRow::*index, int offset, Take take) {
    residual_ = x;
    if (is_here()) shares().look_up(*step_, table.cut, table.held.out > 0, std::span(rows_), index, offset, x, take);
  }

  B& device_;
  SplitState<B, C>& state_;
  const ranks::Grid<C>& grid_;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_lock<std::mutex> lock_;
  const StepPlan whole_;
  std::vector<std::byte*> pages_, states_;  // this rank's addresses
  Rows residual_ = {};
  HeadCut heads_ = {};        // of the current attention
  bool keeps_heads_ = false;  // attention outputs are not gathered
  int at_ = 0;                // stage of the rows
  std::int64_t first_ = 0;    // of the current part, like the members below
  std::vector<PlanRow> rows_;
  std::vector<PlanSequence> sequences_;
  StepPlan plan_;
  std::optional<Step> step_;
  std::optional<typename Shares::Turn> turn_;
};

}  // namespace backend
}}
