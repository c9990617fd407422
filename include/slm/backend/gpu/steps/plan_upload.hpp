// PlanUpload: copies a step's plan to the device in one transfer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "slm/backend/gpu/kernels/choice.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/host_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/step_shape.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// A plan in device memory; at the same addresses for all steps of a shape.
struct DevicePlan {
  Memory<const StepRow> rows;
  Memory<const StepSequence> sequences;  // empty if each sequence has one row
  Memory<const int> outputs;
  Memory<const Draw> draws;
  Memory<StepRow> next;             // rows of later steps of a chain
  Memory<std::byte* const> states;  // per sequence [1 + rows], see StepPlan::states
  PageTable tables;
};

template <Runtime R>
class PlanUpload {
 public:
  explicit PlanUpload(R runtime) : runtime_(std::move(runtime)), block_(runtime_, first_size) {}

  /// Allocates for a plan of this shape with `entries` page table entries. Returns true if the block has moved.
  bool reserve(const StepShape& shape, std::size_t entries, typename R::Stream& stream) {
    const std::size_t wanted = Layout(shape).tables + entries * sizeof(std::byte*);
    if (wanted <= block_.size()) return false;
    std::size_t size = block_.size();
    while (size < wanted) size *= 2;
    runtime_.synchronize(stream);
    block_ = {};
    block_ = DeviceBuffer<std::byte, R>(runtime_, size);
    return true;
  }

  /// Device addresses of a plan of this shape.
  DevicePlan place(const StepShape& shape) {
    const Layout at(shape);
    return {.rows = part<const StepRow>(0, shape.rows),
            .sequences = part<const StepSequence>(at.sequences, shape.longest > 1 ? shape.sequences : 0),
            .outputs = part<const int>(at.outputs, shape.outputs),
            .draws = part<const Draw>(at.draws, shape.outputs),
            .next = part<StepRow>(at.next, shape.steps > 1 ? shape.outputs : 0),
            .states = part<std::byte* const>(at.states, Layout::states_of(shape)),
            .tables =
                part<std::byte* const>(at.tables, static_cast<int>((block_.size() - at.tables) / sizeof(std::byte*)))};
  }

  /// Copies the plan; requires reserve().
  void send(const StepPlan& plan, const StepShape& shape, typename R::Stream& stream) {
    const Layout at(shape);
    const std::size_t size = at.tables + plan.pages.size_bytes();
    Half& half = halves_[turn_ ^= 1];
    if (half.sent) runtime_.synchronize(*half.sent);
    if (!half.memory || half.memory->size() < size) half.memory.emplace(runtime_, std::max(size, block_.size()));
    if (!half.sent) half.sent.emplace(runtime_.make_event());
    std::byte* const to = half.memory->data();
    auto* const rows = reinterpret_cast<StepRow*>(to);
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      const PlanRow& row = plan.rows[r];
      const PlanSequence& of = plan.sequences[static_cast<std::size_t>(row.sequence)];
      const auto* const adapter =
          of.adapter == nullptr ? nullptr : static_cast<const DeviceAdapter*>(of.adapter->table);
      rows[r] = {row.token, row.position, row.sequence, of.rope, of.first_page, of.pages, adapter};
    }
    constexpr StepRow nothing{0, 0, -1, 0, 0, 0, nullptr};
    std::fill(rows + plan.rows.size(), rows + shape.rows, nothing);
    auto* const sequences = reinterpret_cast<StepSequence*>(to + at.sequences);
    for (std::size_t s = 0; s < plan.sequences.size(); ++s)
      sequences[s] = {plan.sequences[s].first_row, plan.sequences[s].rows};
    std::fill(sequences + plan.sequences.size(), sequences + shape.sequences, StepSequence{shape.rows, 0});
    auto* const outputs = reinterpret_cast<int*>(to + at.outputs);
    std::fill(std::copy(plan.outputs.begin(), plan.outputs.end(), outputs), outputs + shape.outputs, -1);
    std::copy(plan.draws.begin(), plan.draws.end(), reinterpret_cast<Draw*>(to + at.draws));
    auto* const next = reinterpret_cast<StepRow*>(to + at.next);
    std::fill(next, next + shape.outputs, nothing);
    std::copy(plan.pages.begin(), plan.pages.end(), reinterpret_cast<std::byte**>(to + at.tables));
    auto* state = reinterpret_cast<std::byte**>(to + at.states);  // kernels find a sequence's states by its first row
    for (const PlanSequence& sequence : plan.sequences) {
      if (shape.recurrent)
        state = std::copy_n(&plan.states[static_cast<std::size_t>(sequence.first_state)], 1 + sequence.rows, state);
    }
    runtime_.copy_in(block_.data(), to, size, stream);
    runtime_.record(*half.sent, stream);
  }

 private:
  static constexpr std::size_t first_size = std::size_t{64} << 10;

  /// Host memory that is filled while the other half's copy may still run.
  struct Half {
    std::optional<HostBuffer<R>> memory;
    std::optional<typename R::Event> sent;
  };

  /// Byte offsets in the block.
  struct Layout {
    std::size_t sequences, outputs, draws, next, states, tables;

    explicit Layout(const StepShape& shape) {
      const auto behind = [](std::size_t begin, int count, std::size_t size) {
        return (begin + static_cast<std::size_t>(count) * size + 15) / 16 * 16;
      };
      sequences = behind(0, shape.rows, sizeof(StepRow));
      outputs = behind(sequences, shape.sequences, sizeof(StepSequence));
      draws = behind(outputs, shape.outputs, sizeof(int));
      next = behind(draws, shape.outputs, sizeof(Draw));
      states = behind(next, shape.outputs, sizeof(StepRow));
      tables = behind(states, states_of(shape), sizeof(std::byte*));
    }

    static int states_of(const StepShape& shape) { return shape.recurrent ? shape.rows + shape.sequences : 0; }
  };

  template <class T>
  Memory<T> part(std::size_t at, int count) {
    return {count == 0 ? nullptr : reinterpret_cast<T*>(block_.data() + at), count};
  }

  R runtime_;
  DeviceBuffer<std::byte, R> block_;
  Half halves_[2];
  int turn_ = 0;
};

}}}
