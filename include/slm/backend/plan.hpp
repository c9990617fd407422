// StepPlan: the rows of one step, whichever sequences they belong to, and where keys and values of those lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/adapter.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm { inline namespace v0_1 {

/// Positions of one page of the KV cache. Attention cuts a sequence at multiples of it on every backend, so that where
/// a page lies changes an address and no sum.
inline constexpr int page_positions = 64;

/// One token of a step.
struct PlanRow {
  Token token = 0;
  int position = 0;
  int sequence = 0;  // index into StepPlan::sequences
  int parent = -1;   // the row of this step whose text it continues; -1: what the cache holds
};

/// The rows of one sequence, neighbours in the step and in the text, and its page tables.
struct PlanSequence {
  int first_row = 0;
  int rows = 0;
  int rope = 0;                      // which of Rope's tables
  int first_page = 0;                // where its tables begin in StepPlan::pages
  int pages = 0;                     // entries of the table of each kind of layer
  const Adapter* adapter = nullptr;  // what changes the products of its rows; null: nothing
};

/// What a forward is to answer about a token.
enum class Want : std::uint8_t {
  nothing,  // only its keys and values, as of a prompt
  logits,   // [vocab]: of the token that follows
  choice,   // the token that follows, chosen where the logits are; for models with ModelInfo::chooses
  hidden,   // [hidden]: what the head reads, behind the last norm
};

/// What a backend must know of a step. Everything it refers to outlives the step.
struct StepPlan {
  std::span<const PlanRow> rows;
  std::span<const PlanSequence> sequences;
  std::span<std::byte* const> pages;  // per sequence [kinds, pages], in device memory; null: released, never read
  std::span<const int> outputs;       // rows, ascending, that go on behind the last block
  std::span<const Draw> draws;        // [outputs] where the device chooses tokens, else empty
  int steps = 1;                      // more: a chain, each step on the tokens that the one before chose
  KvFormat format = KvFormat::f32;    // of all pages
  Want want = Want::nothing;          // what the outputs are asked for

  bool outputs_are_rows() const { return outputs.size() == rows.size(); }

  /// The page tables of a sequence for one kind of layer: entry p / page_positions holds position p.
  std::span<std::byte* const> table(const PlanSequence& sequence, int kind) const {
    return pages.subspan(static_cast<std::size_t>(sequence.first_page + kind * sequence.pages),
                         static_cast<std::size_t>(sequence.pages));
  }
};

inline bool has_adapters(const StepPlan& plan) {
  return std::any_of(plan.sequences.begin(), plan.sequences.end(),
                     [](const PlanSequence& sequence) { return sequence.adapter != nullptr; });
}

/// The adapter of row `index` of `count` activations, which are the rows of a plan or its outputs; null: none.
inline const Adapter* adapter_of(const StepPlan& plan, std::int64_t index, std::int64_t count) {
  if (static_cast<std::size_t>(count) != plan.rows.size()) index = plan.outputs[static_cast<std::size_t>(index)];
  return plan.sequences[static_cast<std::size_t>(plan.rows[static_cast<std::size_t>(index)].sequence)].adapter;
}

/// Where the keys and values of a layer lie in a page of its kind, each [kv_heads, page_positions, head_dim]. In int8
/// the codes of each head, [page_positions, head_dim], are followed by their scales, [page_positions] in float.
struct KvLayer {
  int kind = 0;             // layers with the same window share page tables
  std::int64_t keys = 0;    // bytes from the beginning of a page
  std::int64_t values = 0;  // the same
};

/// Bytes of the keys, or of the values, of one head in a page: whole cache lines.
constexpr std::int64_t kv_head_bytes(KvFormat format, int dim) { return page_positions * kv_row_bytes(format, dim); }

}}
