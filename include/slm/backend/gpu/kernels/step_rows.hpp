// A step's plan in device memory for kernels: rows, sequences and page tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/device_adapter.hpp"
#include "slm/backend/plan.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// A row of a step. Recorded steps are padded to certain numbers of rows. Padding rows are computed if harmless, but
/// access no pages.
struct StepRow {
  int token, position;
  int sequence;                  // -1: padding
  int rope;                      // index into Rope::inverse_frequency
  int first_page, pages;         // of its sequence's page tables, as in PlanSequence
  const DeviceAdapter* adapter;  // null: none
};

/// Rows of a sequence, adjacent; no rows: padding.
struct StepSequence {
  int first_row, rows;
};

using PageTable = Memory<std::byte* const>;

/// Keys or values of one head in a page. Attention reads elements as halves, and int8 scales separately. An int8 code
/// is read as 1152 + code; the matrix unit subtracts 1152.
template <class Element>
struct KvHead {
  static constexpr bool scaled = std::is_same_v<Element, std::int8_t>;
  static constexpr float bias = scaled ? 1152 : 0;

  Memory<Element> numbers;  // [page_positions, dim]
  Memory<float> scales;     // [page_positions], in int8

  /// An element as attention reads it.
  SLM_DEVICE float at(std::int64_t index) const {
    if constexpr (scaled) {
      return static_cast<float>(numbers[index]) + bias;
    } else {
      return to_float(numbers[index]);
    }
  }

  using Eight = std::conditional_t<scaled, Word2, Word4>;

  template <class Lane>
  SLM_DEVICE Eight eight(std::int64_t index) const {
    return Lane::load_stream(numbers.template vector<const Eight>(index));
  }

  template <class Lane>
  static SLM_DEVICE Word4 halves_of(const Eight& eight) {
    if constexpr (scaled) {
      Word4 halves;
      SLM_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t four = eight.word[i] ^ 0x80808080u;  // 128 + code, below a half's 1024
        halves.word[2 * i] = Lane::template bytes<0, 4, 1, 4>(four, 0x64u);
        halves.word[2 * i + 1] = Lane::template bytes<2, 4, 3, 4>(four, 0x64u);
      }
      return halves;
    } else if constexpr (std::is_same_v<Element, bfloat16_t>) {
      Word4 halves;
      std::uint32_t large = 0;  // bits 15 and 31: the value exceeds the range of a half
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t two = eight.word[i];
        large |= (two & 0x7fff7fffu) + 0x38803880u;
        halves.word[i] =
            Lane::pack2_within(Lane::template unpack_low<bfloat16_t>(two), Lane::template unpack_high<bfloat16_t>(two));
      }
      if ((large & 0x80008000u) == 0) return halves;
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t two = eight.word[i];
        halves.word[i] = Lane::template pack2<half_t>(Lane::template unpack_low<bfloat16_t>(two),
                                                      Lane::template unpack_high<bfloat16_t>(two));
      }
      return halves;
    } else {
      return eight;
    }
  }
};

/// Location of one layer's keys and values.
struct KvPages {
  PageTable tables;  // StepPlan::pages
  KvLayer layer;
  KvFormat format;
  int dim;
  std::int64_t head_bytes;  // bytes of a head's keys in a page

  /// Page tables of a row's sequence.
  SLM_DEVICE PageTable table(const StepRow& row) const {
    return tables.part(row.first_page + std::int64_t{layer.kind} * row.pages, row.pages);
  }

  /// Keys or values of a head, at offset `part` of the layer. Empty for a released page, so that host lanes detect an
  /// access.
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

}}}
