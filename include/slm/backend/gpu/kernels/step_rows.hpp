// What kernels see of a step's plan: its rows, sequences and page tables, in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/device_adapter.hpp"
#include "slm/backend/plan.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm::inline v0_1::gpu {

/// A row of a step. Steps that are recorded are filled up to certain numbers of rows: what fills up is computed along
/// where it does no harm, but reads and writes no pages.
struct StepRow {
  int token, position;
  int sequence;                  // -1: it fills up
  int rope;                      // which of Rope's tables
  int first_page, pages;         // of its sequence's page tables, as in PlanSequence
  const DeviceAdapter* adapter;  // null: none
};

/// The rows of a sequence, neighbours; none: it fills up.
struct StepSequence {
  int first_row, rows;
};

using PageTable = Memory<std::byte* const>;

/// The keys or values of one head in a page.
template <class Element>
struct KvHead {
  Memory<Element> numbers;  // [page_positions, dim]
  Memory<float> scales;     // [page_positions], in int8

  /// The number at `index`, of the position that lies in `slot`.
  SLM_DEVICE float at(std::int64_t index, [[maybe_unused]] int slot) const {
    if constexpr (std::is_same_v<Element, std::int8_t>) {
      return static_cast<float>(numbers[index]) * scales[slot];
    } else {
      return to_float(numbers[index]);
    }
  }

  /// Eight numbers from `index` on, as halves.
  template <class Lane>
  SLM_DEVICE Word4 eight(std::int64_t index, [[maybe_unused]] int slot) const {
    Word4 halves;
    if constexpr (std::is_same_v<Element, std::int8_t>) {
      const Word2 codes = Lane::load_stream(numbers.template vector<const Word2>(index));
      const float scale = scales[slot];
      const auto number = [&](int i) {
        return scale * static_cast<float>(static_cast<std::int8_t>(codes.word[i / 4] >> i % 4 * 8 & 0xffu));
      };
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) halves.word[i] = Lane::template pack2<half_t>(number(2 * i), number(2 * i + 1));
    } else {
      halves = Lane::load_stream(numbers.template vector<const Word4>(index));
      if constexpr (std::is_same_v<Element, bfloat16_t>) {
        SLM_UNROLL
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t two = halves.word[i];
          halves.word[i] = Lane::template pack2<half_t>(Lane::template unpack_low<bfloat16_t>(two),
                                                        Lane::template unpack_high<bfloat16_t>(two));
        }
      }
    }
    return halves;
  }
};

/// Where the keys and values of one layer lie.
struct KvPages {
  PageTable tables;  // StepPlan::pages
  KvLayer layer;
  KvFormat format;
  int dim;
  std::int64_t head_bytes;  // of the keys of a head in a page

  /// The pages of a row's sequence.
  SLM_DEVICE PageTable table(const StepRow& row) const {
    return tables.part(row.first_page + std::int64_t{layer.kind} * row.pages, row.pages);
  }

  /// Of the keys or values, as `part` of the layer says. Empty for a page that was released, so that the host's lanes
  /// find who reads it.
  template <class Element>
  SLM_DEVICE KvHead<Element> head(std::byte* page, std::int64_t part, int kv_head) const {
    if (page == nullptr) return {};
    std::byte* const first = page + part + kv_head * head_bytes;
    const std::int64_t count = std::int64_t{page_positions} * dim;
    KvHead<Element> found{{reinterpret_cast<Element*>(first), count}, {}};
    if constexpr (std::is_same_v<Element, std::int8_t>) {
      found.scales = {reinterpret_cast<float*>(first + count), page_positions};
    }
    return found;
  }
};

}  // namespace slm::gpu
