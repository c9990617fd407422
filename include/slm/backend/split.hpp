// backend::Split: a backend whose matrices are shared out over ranks. Each rank holds some rows of every matrix, hence
// some outputs of every product, and gathers the others' outputs. No sum is cut, so any number of ranks gives the bits
// of one. Attention and the KV cache are whole on every rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/backend/split_orders.hpp"
#include "slm/core/error.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/communicator.hpp"
#include "slm/ranks/letter.hpp"
#include "slm/ranks/team.hpp"

namespace slm::inline v0_1 {

/// A step that can end qkv behind a product that is complete already.
///   finish_qkv   q [rows, heads * dim]   from projected [rows, q | k | v], which it changes: clip, norms, RoPE, pages
template <class Step, class B>
concept FinishesQkv = requires(Step& step, View<typename B::Activation, 2> rows, Rope rope, Heads heads, KvLayer layer,
                               QkvShaping shaping) {
  step.finish_qkv(rows, rope, heads, layer, rows, shaping);
};

namespace backend {

/// A weight [out, in] of which this rank holds some rows.
template <class Held>
struct SplitMatrix {
  std::int64_t out = 0;
  std::int64_t in = 0;
  RowCut cut = {};
  Held held = {};  // without rows where there are more ranks than tiles

  /// What this rank reads for one product.
  std::int64_t bytes() const { return held.bytes(); }
};

/// What the copies of one device share.
template <Backend B, ranks::Communicator C>
struct SplitState {
  SplitState(C communicator, std::shared_ptr<SplitOrders<B, C>> told)
      : ranks(std::move(communicator)), orders(std::move(told)) {}

  std::unique_lock<std::mutex> lock() { return orders == nullptr ? std::unique_lock(mutex) : orders->lock(); }

  C ranks;
  std::shared_ptr<SplitOrders<B, C>> orders;  // null: all ranks make the same calls
  std::mutex mutex;                           // of a step, from its beginning to its end, where there are no orders
  std::vector<float> mine;                    // what this rank gives
  std::vector<float> all;                     // what all give, rank by rank
  std::vector<float> inputs;                  // projections before they become queries, keys and values
  std::vector<float> bias, divisor;
  std::vector<std::size_t> sizes;
};

template <Backend B, ranks::Communicator C>
class SplitStep {
  using Step = decltype(std::declval<B&>().begin(std::declval<const StepPlan&>()));
  static_assert(FinishesQkv<Step, B>);
  template <class Held>
  using Matrix = SplitMatrix<Held>;

 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  SplitStep(B& device, SplitState<B, C>& state, const StepPlan& plan)
      : state_(state),
        lock_(state.lock()),
        rows_(plan.rows.begin(), plan.rows.end()),
        plan_(with_rows(plan, rows_)),
        step_(device.begin(plan_)) {
    if (state.orders != nullptr) state.orders->tell_step(plan);
  }
  ~SplitStep() {  // the others wait for the rest of a step that has failed here
    if (state_.orders != nullptr && std::uncaught_exceptions() > exceptions_) state_.orders->give_up();
  }
  SplitStep(const SplitStep&) = delete;
  SplitStep& operator=(const SplitStep&) = delete;

  int rows() const { return step_.rows(); }
  Rows room(int index, std::int64_t width) { return step_.room(index, width); }
  Rows room_of_outputs(int index, std::int64_t width) { return step_.room_of_outputs(index, width); }

  template <class Body>
  void record(typename B::Recorded& recorded, Body&& body) {
    step_.record(recorded, std::forward<Body>(body));
  }

  template <class Held>
  void embed(const Matrix<Held>& table, Rows x, ConstRows positions = {}, int offset = 0) {
    look_up(table, x, &PlanRow::token, 0, [&] { step_.embed(table.held, x, positions, offset); });
  }

  template <class Held>
  void embed_positions(const Matrix<Held>& table, int offset, Rows x) {
    look_up(table, x, &PlanRow::position, offset, [&] { step_.embed_positions(table.held, offset, x); });
  }

  void adapt_embedding(Rows x) { step_.adapt_embedding(x); }

  template <class Held>
  void qkv(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Rope rope, Heads heads, KvLayer layer, Rows q,
           QkvShaping shaping = {}) {
    const Rows projected = grown(state_.inputs, x.extent(0), linear.weight.out);
    mlp(x, norm, linear, ActivationKind::identity, nullptr, projected);
    step_.finish_qkv(projected, rope, heads, layer, q, shaping);
  }

  void attend(ConstRows q, Heads heads, KvLayer layer, Rows out, Attention attention = {}) {
    step_.attend(q, heads, layer, out, attention);
  }

  template <class Held>
  void project(ConstRows input, const Linear<Matrix<Held>>& linear, Rows x) {
    const RowCut& cut = linear.weight.cut;
    share(linear, cut.parts, x, [&](const auto& held, Rows mine) {
      for (std::int64_t r = 0; r < x.extent(0); ++r) take_own(cut, x.row(r), mine.row(r));
      step_.project(input, held, mine);
    });
  }

  template <class Held>
  void gated_mlp(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Rows out,
                 ActivationKind activation = ActivationKind::silu) {
    share(linear, 1, out, [&](const auto& held, Rows mine) { step_.gated_mlp(x, norm, held, mine, activation); });
  }

  template <class Held>
  void mlp(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, ActivationKind activation, const float* divisor,
           Rows out) {
    share(linear, linear.weight.cut.parts, out, [&](const auto& held, Rows mine) {
      step_.mlp(x, norm, held, activation, own_of(linear.weight.cut, divisor, state_.divisor), mine);
    });
  }

  void normalize(Rows x, Norm norm) { step_.normalize(x, norm); }
  void select(ConstRows x, Rows out) { step_.select(x, out); }

  template <class Held>
  void logits(ConstRows x, Norm norm, const Linear<Matrix<Held>>& linear, Rows out) {
    share(linear, linear.weight.cut.parts, out,
          [&](const auto& held, Rows mine) { step_.logits(x, norm, held, mine); });
  }

  void read(ConstRows x, Rows out) { step_.read(x, out); }

 private:
  static StepPlan with_rows(StepPlan plan, std::span<const PlanRow> rows) {
    plan.rows = rows;
    return plan;
  }

  static Rows grown(std::vector<float>& room, std::int64_t rows, std::int64_t width) {
    room.resize(std::max(room.size(), static_cast<std::size_t>(rows * width)));
    return {room.data(), rows, width};
  }

  int rank() const { return state_.ranks.rank(); }

  /// This rank's of one number for each row of a weight.
  void take_own(const RowCut& cut, const float* whole, float* to) const {
    for (int part = 0; part < cut.parts; ++part, to += cut.count(rank()))
      std::copy_n(whole + part * cut.width + cut.first(rank()), cut.count(rank()), to);
  }
  const float* own_of(const RowCut& cut, const float* whole, std::vector<float>& to) const {
    if (whole == nullptr) return nullptr;
    take_own(cut, whole, grown(to, cut.parts, cut.count(rank())).data);
    return to.data();
  }

  /// out [rows, parts * width]: compute(linear, mine) gives this rank's outputs, mine [rows, parts * its count].
  template <class Held, class Compute>
  void share(const Linear<Matrix<Held>>& linear, int parts, Rows out, Compute compute) {
    const RowCut& cut = linear.weight.cut;
    const std::int64_t rows = out.extent(0), ranks = state_.ranks.size();
    const Rows mine = grown(state_.mine, rows, parts * cut.count(rank()));
    if (mine.size() > 0) compute(Linear{linear.weight.held, own_of(cut, linear.bias, state_.bias)}, mine);
    state_.sizes.clear();
    for (int r = 0; r < ranks; ++r) state_.sizes.push_back(bytes_of(rows * parts * cut.count(r)));
    const float* from = gather(mine.size(), rows * parts * cut.width);
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t count = cut.count(r);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (int part = 0; part < parts; ++part, from += count)
          std::copy_n(from, count, out.row(row) + part * cut.width + cut.first(r));
      }
    }
  }

  /// x = rows of a table that lie on any rank: take() reads those that the plan's rows name by `index`, less the
  /// offset, among the table's own. The step refers to rows_, so what they name may be changed while it reads.
  template <class Held, class Take>
  void look_up(const Matrix<Held>& table, Rows x, int PlanRow::*index, int offset, Take take) {
    const std::vector<PlanRow> asked = rows_;
    const std::int64_t width = x.extent(1);
    std::vector<int> owners;
    state_.sizes.assign(static_cast<std::size_t>(state_.ranks.size()), 0);
    for (PlanRow& row : rows_) {
      const RowCut::Place place = table.cut.find(row.*index + offset);
      row.*index = (place.rank == rank() ? static_cast<int>(place.row) : 0) - offset;
      owners.push_back(place.rank);
      state_.sizes[static_cast<std::size_t>(place.rank)] += bytes_of(width);
    }
    if (table.held.out > 0) take();
    std::copy(asked.begin(), asked.end(), rows_.begin());
    const auto count = static_cast<std::int64_t>(rows_.size());
    const Rows mine = grown(state_.mine, count, width);
    std::int64_t own = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      if (owners[static_cast<std::size_t>(r)] == rank()) std::copy_n(x.row(r), width, mine.row(own++));
    }
    const float* from = gather(own * width, count * width);
    for (int owner = 0; owner < state_.ranks.size(); ++owner) {
      for (std::int64_t r = 0; r < count; ++r) {
        if (owners[static_cast<std::size_t>(r)] != owner) continue;
        std::copy_n(from, width, x.row(r));
        from += width;
      }
    }
  }

  static std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

  /// The first `count` floats of mine, and what the others give by state_.sizes: `total` floats.
  const float* gather(std::int64_t count, std::int64_t total) {
    grown(state_.all, 1, total);
    const std::span<const float> mine(state_.mine.data(), static_cast<std::size_t>(count));
    const std::span<float> all(state_.all.data(), static_cast<std::size_t>(total));
    state_.ranks.all_gather(std::as_bytes(mine), state_.sizes, std::as_writable_bytes(all));
    return all.data();
  }

  SplitState<B, C>& state_;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_lock<std::mutex> lock_;
  std::vector<PlanRow> rows_;
  StepPlan plan_;
  Step step_;
};

/// B over the ranks of a communicator. All of them load the same models, and take the same steps in one order: because
/// all make the same calls, or by orders, with which rank 0 tells the others its steps and they obey().
template <Backend B, ranks::Communicator C>
class Split {
  static_assert(!B::own_memory && std::is_same_v<typename B::Activation, float>, "gathers floats of the host");

 public:
  static constexpr const char* name = B::name;
  static constexpr int max_rows = B::max_rows;
  static constexpr bool chooses = false;
  static constexpr bool own_memory = false;
  using Activation = float;
  static constexpr auto kv_formats = B::kv_formats;
  using Recorded = typename B::Recorded;
  using Pages = typename SplitOrders<B, C>::Pages;
  template <class T>
  using Buffer = std::conditional_t<std::is_same_v<T, std::byte>, Pages, typename B::template Buffer<T>>;
  template <class Format>
  using Matrix = SplitMatrix<typename B::template Matrix<Format>>;

  Split(B device, C communicator)
      : device_(std::move(device)), state_(std::make_shared<State>(std::move(communicator), nullptr)) {}
  /// number: of this device, among those of the team; the same on every rank.
  Split(B device, std::shared_ptr<ranks::Team<C>> team, int number)
      : device_(std::move(device)),
        state_(std::make_shared<State>(team->ranks(), std::make_shared<SplitOrders<B, C>>(device_, team, number))) {}

  template <class T>
  Buffer<T> allocate(std::size_t count) {
    if constexpr (std::is_same_v<T, std::byte>) {
      if (state_->orders != nullptr) return SplitOrders<B, C>::take_pages(state_->orders, count);
      return {device_.template allocate<T>(count)};
    } else {
      return device_.template allocate<T>(count);
    }
  }
  Buffer<float> upload(const float* host, std::size_t count) { return device_.upload(host, count); }

  void copy_weights() requires requires(B& device) { device.copy_weights(); }
  { device_.copy_weights(); }

  /// Packs this rank's rows. How a backend holds a matrix depends on all of its sources, so none is left out, be it
  /// without rows.
  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    Matrix<Format> matrix;
    matrix.in = in_features(sources.front());
    for (const auto& source : sources) matrix.out += out_features(source);
    const RowCut cut = matrix.cut = RowCut(matrix.out, state_->ranks.size());
    const int rank = state_->ranks.rank();
    std::vector<typename Format::Source> own;
    for (int part = 0; cut.count(rank) > 0 && part < cut.parts; ++part) {
      std::int64_t first = part * cut.width + cut.first(rank), last = first + cut.count(rank);  // in what follows
      for (const auto& source : sources) {
        const std::int64_t rows = out_features(source);
        const std::int64_t from = std::clamp<std::int64_t>(first, 0, rows),
                           to = std::clamp<std::int64_t>(last, 0, rows);
        own.push_back(rows_of(source, from, to - from));
        first -= rows;
        last -= rows;
      }
    }
    if (!own.empty()) matrix.held = device_.template pack<Format>(own);
    return matrix;
  }

  Adapter place(const Adapter&) {
    throw Error("ranks.adapter", "an adapter was given to a model that is split over several ranks",
                "Merge it into the model (slm merge), or use one rank");
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    state_->orders == nullptr ? device_.copy(to, from, bytes) : state_->orders->copy(to, from, bytes);
  }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) { device_.read(host, from, bytes); }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) {
    state_->orders == nullptr ? device_.write(to, host, bytes) : state_->orders->write(to, host, bytes);
  }

  SplitStep<B, C> begin(const StepPlan& plan) { return {device_, *state_, plan}; }

  /// On ranks behind the first, whose steps are rank 0's: see FollowsSteps.
  void on_step(std::function<void(const StepPlan&)> take) {
    if (state_->orders != nullptr) state_->orders->on_step(std::move(take));
  }
  void obey(ranks::Letter& letter) { state_->orders->obey(letter); }

 private:
  using State = SplitState<B, C>;

  B device_;
  std::shared_ptr<State> state_;
};

}  // namespace backend

/// The backend of a rank: B itself where there is one only.
template <Backend B, ranks::Communicator C>
using OnRanks = typename std::conditional_t<std::is_same_v<C, ranks::Alone>, std::type_identity<B>,
                                            std::type_identity<backend::Split<B, C>>>::type;

}  // namespace slm
