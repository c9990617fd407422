// Rows of KV cache pages in host memory, in every format.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slm/backend/plan.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Keys or values of one KV head at one position: [dim] elements.
struct KvRow {
  KvFormat format;
  std::byte* head;  // address of the head in a page: see KvLayout
  int slot;         // index of the position in its page
  int dim;

  void put(const float* from) const {
    if (format != KvFormat::int8) return put(0, from, dim);
    float largest = 0;
    for (int i = 0; i < dim; ++i) largest = std::max(largest, Int8Scale::magnitude(from[i]));
    const Int8Scale scale(largest);
    std::int8_t* const codes = numbers<std::int8_t>();
    for (int i = 0; i < dim; ++i) codes[i] = scale.code(from[i]);
    scale_of_row() = scale.scale;
  }

  /// Writes some elements, for formats without scales.
  void put(int first, const float* from, int count) const {
    visit(format, [&]<class Element>(Element) {
      if constexpr (!std::is_same_v<Element, std::int8_t>) {
        Element* const to = numbers<Element>() + first;
        for (int i = 0; i < count; ++i) to[i] = kv_element<Element>(from[i]);
      }
    });
  }

  void get(float* to) const {
    visit(format, [&]<class Element>(Element) {
      const Element* const from = numbers<Element>();
      for (int i = 0; i < dim; ++i) {
        if constexpr (std::is_same_v<Element, std::int8_t>) {
          to[i] = static_cast<float>(from[i]) * scale_of_row();
        } else {
          to[i] = to_float(from[i]);
        }
      }
    });
  }

 private:
  template <class Element>
  Element* numbers() const {
    return reinterpret_cast<Element*>(head) + std::int64_t{slot} * dim;
  }
  float& scale_of_row() const { return reinterpret_cast<float*>(head + std::int64_t{page_positions} * dim)[slot]; }
};

/// The row at a position of a sequence. part: offset of the layer's keys or values in the page.
inline KvRow kv_row(const StepPlan& plan, int sequence, int kind, std::int64_t part, int dim, int head, int position) {
  const auto table = plan.table(plan.sequences[static_cast<std::size_t>(sequence)], kind);
  std::byte* const page = table[static_cast<std::size_t>(position / page_positions)];
  return {plan.format, page + part + head * kv_head_bytes(plan.format, dim), position % page_positions, dim};
}

}}}
