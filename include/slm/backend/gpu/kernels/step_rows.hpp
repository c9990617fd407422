// What kernels see of a step's plan: its rows, sequences and page tables, in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/plan.hpp"
#include "slm/core/types.hpp"

namespace slm::gpu {

/// A row of a step. Steps that are recorded are filled up to certain numbers of rows: what fills up is computed along
/// where it does no harm, but reads and writes no pages.
struct StepRow {
  int token, position;
  int sequence;           // -1: it fills up
  int rope;               // which of Rope's tables
  int first_page, pages;  // of its sequence's page tables, as in PlanSequence
};

/// The rows of a sequence, neighbours; none: it fills up.
struct StepSequence {
  int first_row, rows;
};

/// Where the keys and values of one layer lie.
struct KvPages {
  Memory<std::byte* const> tables;  // StepPlan::pages
  KvLayer layer;
  std::int64_t size;  // elements of the keys of a page: [kv, page_positions, dim]

  SLM_DEVICE Memory<half_t> keys(const StepRow& row, int page) const { return inside(row, page, layer.keys); }
  SLM_DEVICE Memory<half_t> values(const StepRow& row, int page) const { return inside(row, page, layer.values); }

 private:
  /// Empty for a page that was released, so that the host's lanes find who reads it.
  SLM_DEVICE Memory<half_t> inside(const StepRow& row, int page, std::int64_t offset) const {
    std::byte* const begin = tables.part(row.first_page + std::int64_t{layer.kind} * row.pages, row.pages)[page];
    if (begin == nullptr) return {};
    return {reinterpret_cast<half_t*>(begin + offset), size};
  }
};

}  // namespace slm::gpu
