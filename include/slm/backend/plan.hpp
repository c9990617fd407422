// StepPlan: the rows of one step, of any sequences, and the locations of their keys and values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/kv_format.hpp"
#include "slm/lm/adapter.hpp"
#include "slm/lm/row_result.hpp"

namespace slm { inline namespace v0_1 {

/// One token of a step.
struct PlanRow {
  Token token = 0;
  int position = 0;
  int sequence = 0;  // index into StepPlan::sequences
  int parent = -1;   // the preceding row of this step; -1: the preceding token is in the cache
};

/// The rows of one sequence, adjacent in step and text, and its page tables.
struct PlanSequence {
  int first_row = 0;
  int rows = 0;
  int rope = 0;                      // index into Rope::inverse_frequency
  int first_page = 0;                // index of its tables in StepPlan::pages
  int pages = 0;                     // entries of the table of each kind of layer
  int first_state = 0;               // index of its states in StepPlan::states
  const Adapter* adapter = nullptr;  // adapter of its rows; null: none
};

/// The input of a backend for one step. Everything it refers to must outlive the step.
struct StepPlan {
  std::span<const PlanRow> rows;
  std::span<const PlanSequence> sequences;
  std::span<std::byte* const> pages;  // per sequence [kinds, pages], in device memory; null: released, never read
  /// Of recurrent layers, per sequence [1 + rows]: the page with the state before its first row (null: zero), and the
  /// pages to write after each row. A row whose state is not kept has the page of the next one.
  std::span<std::byte* const> states = {};
  std::span<const int> outputs;     // rows with results, ascending; only these continue after the last block
  std::span<const Draw> draws;      // [outputs] if the device chooses tokens, else empty
  int steps = 1;                    // above 1: a chain; each step continues with the tokens that the previous one chose
  KvFormat format = KvFormat::f32;  // format of all pages
  RowResult result = RowResult::nothing;                // result of the output rows
  std::span<const TokenMask* const> masks = {};         // [outputs] if any draw has a mask, else empty; null: none
  const std::function<void()>* before_masks = nullptr;  // called, if set, before the masks are read

  bool outputs_are_rows() const { return outputs.size() == rows.size(); }

  /// The page table of a sequence for one kind of layer: entry p / page_positions holds position p.
  std::span<std::byte* const> table(const PlanSequence& sequence, int kind) const {
    return pages.subspan(static_cast<std::size_t>(sequence.first_page + kind * sequence.pages),
                         static_cast<std::size_t>(sequence.pages));
  }
};

inline bool has_adapters(const StepPlan& plan) {
  return std::any_of(plan.sequences.begin(), plan.sequences.end(),
                     [](const PlanSequence& sequence) { return sequence.adapter != nullptr; });
}

/// The adapter of row `index`, null: none. count: number of activation rows, either all rows of the plan or its
/// outputs.
inline const Adapter* adapter_of(const StepPlan& plan, std::int64_t index, std::int64_t count) {
  if (static_cast<std::size_t>(count) != plan.rows.size()) index = plan.outputs[static_cast<std::size_t>(index)];
  return plan.sequences[static_cast<std::size_t>(plan.rows[static_cast<std::size_t>(index)].sequence)].adapter;
}

/// Offsets of a layer's keys and values in a page, each [kv_heads, page_positions, head_dim]. In int8, each head's
/// codes [page_positions, head_dim] are followed by float scales [page_positions].
struct KvLayer {
  int kind = 0;             // layers with the same window and heads share page tables
  std::int64_t keys = 0;    // byte offset in a page
  std::int64_t values = 0;  // byte offset in a page
  std::int64_t state = 0;   // byte offset of a recurrent layer's state in a state page
};

/// Bytes of the keys, or of the values, of one head in a page: a multiple of a cache line.
constexpr std::int64_t kv_head_bytes(KvFormat format, int dim) { return page_positions * kv_row_bytes(format, dim); }

}}
