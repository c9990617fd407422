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

using PageTable = Memory<std::byte* const>;

/// Where the keys and values of one layer lie.
struct KvPages {
  PageTable tables;  // StepPlan::pages
  KvLayer layer;
  std::int64_t size;  // elements of the keys of a page: [kv, page_positions, dim]

  /// The pages of a row's sequence.
  SLM_DEVICE PageTable table(const StepRow& row) const {
    return tables.part(row.first_page + std::int64_t{layer.kind} * row.pages, row.pages);
  }
  SLM_DEVICE Memory<half_t> keys(std::byte* page) const { return inside(page, layer.keys); }
  SLM_DEVICE Memory<half_t> values(std::byte* page) const { return inside(page, layer.values); }

 private:
  /// Empty for a page that was released, so that the host's lanes find who reads it.
  SLM_DEVICE Memory<half_t> inside(std::byte* page, std::int64_t offset) const {
    if (page == nullptr) return {};
    return {reinterpret_cast<half_t*>(page + offset), size};
  }
};

}  // namespace slm::gpu
