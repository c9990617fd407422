// backend::Split: a backend that distributes matrices over ranks. The ranks of a stage hold some layers, and of each
// matrix some rows, hence some outputs of every product and some attention heads. No sum is divided, so results have
// the same bits for any number of ranks. With fast_reduce, the matrices after attention and after the MLP's inner layer
// are divided by inputs instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/backend/split_commands.hpp"
#include "slm/backend/split_step.hpp"
#include "slm/backend/weight_place.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/columns.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/communicator.hpp"
#include "slm/ranks/grid.hpp"
#include "slm/ranks/message.hpp"
#include "slm/ranks/team.hpp"

namespace slm { inline namespace v0_1 {

namespace backend {

/// B over the ranks of a grid. All ranks load the same models and run the same steps in the same order. Either all make
/// the same calls, or rank 0 sends commands and the others execute them (execute()).
/// Public members: the operations of the concept Backend.
template <Backend B, ranks::Communicator C>
class Split {
  static_assert(std::is_same_v<typename B::Activation, float>, "gathers floats");

 public:
  static constexpr const char* name = B::name;
  static constexpr int max_rows = B::max_rows;
  static constexpr bool chooses = false;
  static constexpr bool own_memory = B::own_memory;
  using Activation = float;
  static constexpr auto kv_formats = B::kv_formats;
  using Recorded = typename B::Recorded;
  template <class T>
  using Buffer = typename B::template Buffer<T>;
  template <class Format>
  using Matrix = SplitMatrix<typename B::template Matrix<Format>>;

  Split(B device, const C& ranks, int stages = 1, bool fast_reduce = false)
      : device_(std::move(device)),
        state_(std::make_shared<State>(device_, std::make_shared<const ranks::Grid<C>>(ranks, stages))) {
    state_->fast_reduce = fast_reduce;
  }
  /// grid: of the team's ranks. number: of this device in the team, equal on all ranks.
  Split(B device, std::shared_ptr<ranks::Team<C>> team, std::shared_ptr<const ranks::Grid<C>> grid, int number,
        bool fast_reduce = false)
      : device_(std::move(device)), state_(std::make_shared<State>(device_, std::move(grid))) {
    state_->fast_reduce = fast_reduce;
    const auto take_adapter = [device = device_, state = state_.get()](const Adapter& adapter) mutable {
      return device.place(state->share_of(adapter));
    };
    state_->commands = std::make_shared<SplitCommands<B, C>>(state_->pages, std::move(team), number, take_adapter);
  }

  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return device_.template allocate<T>(count);
  }

  /// Pages that the ranks hold together; released by the destructor.
  class Pages {
   public:
    Pages(std::shared_ptr<SharedPages<B, C>> pages, std::shared_ptr<SplitCommands<B, C>> commands,
          const KvPageShape& shape, std::size_t count)
        : name_(pages->new_name(shape.bytes() * count)), holder_(name_, [pages, commands](const std::byte* name) {
            pages->give_up(name);
            if (commands != nullptr) commands->send_give_pages(name);
          }) {
      pages->hold(name_, shape, count);
      if (commands != nullptr) commands->send_take_pages(name_, shape, count);
    }

    std::byte* data() { return name_; }

   private:
    std::byte* name_;
    std::shared_ptr<const std::byte> holder_;
  };
  Pages take_pages(const KvPageShape& shape, std::size_t count) {
    return {state_->pages, state_->commands, shape, count};
  }

  std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) requires B::own_memory {
    return device_.host_memory(bytes);
  }

  Buffer<float> upload(const float* host, std::size_t count) { return device_.upload(host, count); }

  void copy_weights() requires requires(B& device) { device.copy_weights(); }
  { device_.copy_weights(); }

  /// Packs this rank's rows or columns of the layers of its stage. A matrix's layout depends on all its sources, so
  /// sources without own rows are kept.
  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources, const WeightPlace& place = {}) {
    const ranks::Grid<C>& grid = *state_->grid;
    Matrix<Format> matrix;
    matrix.stage = place.stage(grid.stages);
    matrix.in = in_features(sources.front());
    for (const auto& source : sources) matrix.out += out_features(source);
    matrix.cut = RowCut(matrix.out, grid.lanes);
    matrix.whole = place.whole;
    const bool is_head = place.at_both_ends && grid.is_last();
    if (place.product == AdaptedProduct::qkv) matrix.heads = HeadCut(place.heads, place.norm, grid.lanes);
    if (state_->fast_reduce && place.summed) cut_by_inputs(matrix, sources, place);
    if (grid.stage != matrix.stage && !is_head) return matrix;
    if (place.whole) {
      matrix.held = device_.template pack<Format>(sources);
      return matrix;
    }
    if (matrix.inputs.width > 0) {
      pack_columns<Format>(matrix, sources, number_of(*place.product, place.layer));
      return matrix;
    }
    const std::vector<RowRange> rows = matrix.heads.whole
                                           ? matrix.cut.of(grid.lane)
                                           : matrix.heads.rows_of(grid.lane, qkv_parts(matrix.out, matrix.heads.heads));
    if (place.product && place.product != AdaptedProduct::embedding)
      state_->rows.insert_or_assign(number_of(*place.product, place.layer), rows);
    if (is_head) state_->rows.insert_or_assign(number_of(AdaptedProduct::head), rows);
    std::vector<typename Format::Source> own;
    for (const RowRange& range : rows) {
      std::int64_t first = range.first, last = range.last;  // relative to the remaining sources
      for (const auto& source : sources) {
        const std::int64_t count = out_features(source);
        const std::int64_t from = std::clamp<std::int64_t>(first, 0, count);
        const std::int64_t to = std::clamp<std::int64_t>(last, 0, count);
        own.push_back(rows_of(source, from, to - from));
        first -= count;
        last -= count;
      }
    }
    if (!own.empty()) matrix.held = device_.template pack<Format>(own);
    return matrix;
  }

  /// This rank's rows of the experts of a layer, where kernels find them.
  template <class Format>
  SplitExperts<typename B::template Matrix<Format>> tabulate(std::span<const Expert<Matrix<Format>>> experts) requires
      requires(B& device, std::span<const Expert<typename B::template Matrix<Format>>> held) {
    device.template tabulate<Format>(held);
  }
  {
    const ranks::Grid<C>& grid = *state_->grid;
    if (experts.front().down.stage != grid.stage) return {};
    const auto biases = std::make_shared<std::vector<Buffer<float>>>();
    const auto own = [&](const Matrix<Format>& matrix, const float* whole) -> const float* {
      if (whole == nullptr || matrix.held.out == 0) return nullptr;
      biases->push_back(device_.template allocate<float>(static_cast<std::size_t>(matrix.held.out)));
      auto* to = reinterpret_cast<std::byte*>(biases->back().data());
      for (const RowRange& range : matrix.cut.of(grid.lane)) {
        const std::size_t bytes = static_cast<std::size_t>(range.count()) * sizeof(float);
        device_.copy(to, reinterpret_cast<const std::byte*>(whole + range.first), bytes);
        to += bytes;
      }
      return biases->back().data();
    };
    std::vector<Expert<typename B::template Matrix<Format>>> held;
    for (const auto& expert : experts)
      held.push_back({.gate_up = expert.gate_up.held,
                      .down = expert.down.held,
                      .gate_up_bias = own(expert.gate_up, expert.gate_up_bias),
                      .down_bias = own(expert.down, expert.down_bias)});
    return {device_.template tabulate<Format>(held), biases};
  }

  /// Collective: places each rank's share of an adapter.
  Adapter place(const Adapter& adapter) {
    Adapter placed = device_.place(state_->share_of(adapter));
    if (state_->commands != nullptr) placed.memory = state_->commands->send_adapter(adapter, std::move(placed.memory));
    return placed;
  }

  // These operate on whole pages.

  void copy(std::byte* to, const std::byte* from, std::size_t) {
    if (state_->commands != nullptr) state_->commands->send_copy(to, from);
    state_->pages->copy(to, from);
  }
  void read(std::byte* host, const std::byte* from, std::size_t) {
    state_->commands == nullptr ? state_->pages->read(host, from) : state_->commands->read(host, from);
  }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) {
    if (state_->commands != nullptr) state_->commands->send_write(to, {host, bytes});
    state_->pages->write(to, host);
  }

  SplitStep<B, C> begin(const StepPlan& plan) { return {device_, *state_, plan}; }

  /// For ranks other than 0, whose steps are driven by rank 0: see FollowsSteps.
  void on_step(std::function<void(const StepPlan&)> take) {
    if (state_->commands != nullptr) state_->commands->on_step(std::move(take));
  }
  void execute(ranks::Message& message) { state_->commands->execute(message); }

 private:
  using State = SplitState<B, C>;

  /// Sets whether the matrix is divided by its inputs, or leaves its outputs to a matrix that is. That matrix is packed
  /// first.
  template <class Held, class Source>
  void cut_by_inputs(SplitMatrix<Held>& matrix, std::span<const Source> sources, const WeightPlace& place) {
    const int lanes = state_->grid->lanes;
    const bool reads_heads = place.product == AdaptedProduct::attention_out;
    if (reads_heads || place.product == AdaptedProduct::down) {
      std::int64_t unit = 1;
      for (const Source& source : sources) unit = std::lcm(unit, column_unit(source));
      if (reads_heads) {
        const HeadCut heads(place.heads, place.norm, lanes);
        if (!heads.whole && heads.query.lies_at(unit)) matrix.inputs = heads.query;
      } else {
        unit = std::lcm(unit, RowCut::tile_of_kernels);
        if (matrix.in >= unit * lanes) matrix.inputs = RowCut(matrix.in, lanes, unit);
      }
      const auto before = reads_heads ? AdaptedProduct::qkv : AdaptedProduct::gate_up;
      state_->kept[number_of(before, place.layer)] = matrix.inputs;
    } else if (place.product == AdaptedProduct::qkv || place.product == AdaptedProduct::gate_up) {
      const RowCut& outputs = state_->kept[number_of(*place.product, place.layer)];
      matrix.kept = outputs.width > 0;
      if (!matrix.kept || place.product == AdaptedProduct::qkv) return;
      matrix.cut = outputs;
      matrix.cut.parts = static_cast<int>(matrix.out / outputs.width);
    }
  }

  template <class Format>
  void pack_columns(Matrix<Format>& matrix, std::span<const typename Format::Source> sources, int product) {
    const int lane = state_->grid->lane;
    const RowRange columns{matrix.inputs.first(lane), matrix.inputs.first(lane + 1)};
    state_->columns.insert_or_assign(product, columns);
    state_->rows.insert_or_assign(product,
                                  columns.count() > 0 ? std::vector{State::all_rows} : std::vector<RowRange>{});
    if (columns.count() == 0) return;
    ColumnParts parts;
    std::vector<typename Format::Source> own;
    for (const auto& source : sources) own.push_back(columns_of(source, columns.first, columns.count(), parts));
    matrix.held = device_.template pack<Format>(own);
  }

  B device_;
  std::shared_ptr<State> state_;
};

}  // namespace backend

/// The backend of a rank: B itself for a single process.
template <Backend B, ranks::Communicator C>
using OnRanks = typename std::conditional_t<std::is_same_v<C, ranks::Alone>, std::type_identity<B>,
                                            std::type_identity<backend::Split<B, C>>>::type;

}}
