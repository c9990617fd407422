// View: a non-owning pointer with extents and strides, to host or device memory.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

template <class T, int Rank>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, Rank> extents{};
  std::array<std::int64_t, Rank> strides{};  // in elements

  View() = default;

  /// A dense row-major view: View<float, 2> logits{pointer, rows, vocab}.
  template <std::integral... Extents>
  requires(sizeof...(Extents) == Rank) View(T* pointer, Extents... sizes)
      : data(pointer), extents{static_cast<std::int64_t>(sizes)...} {
    std::int64_t stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= extents[axis];
    }
  }

  /// A view of mutable elements is also a view of constant ones.
  template <class Mutable = T>
  requires(!std::is_const_v<Mutable>) operator View<const Mutable, Rank>() const {
    View<const T, Rank> constant;
    constant.data = data;
    constant.extents = extents;
    constant.strides = strides;
    return constant;
  }

  template <std::integral... Indices>
  requires(sizeof...(Indices) == Rank) SLM_DEVICE T& operator()(Indices... indices) const {
    const std::int64_t index[] = {static_cast<std::int64_t>(indices)...};
    std::int64_t offset = 0;
    for (int axis = 0; axis < Rank; ++axis) offset += index[axis] * strides[axis];
    return data[offset];
  }

  SLM_DEVICE std::int64_t extent(int axis) const { return extents[axis]; }
  SLM_DEVICE std::int64_t stride(int axis) const { return strides[axis]; }

  /// Pointer to the first element of row `index` of the outermost axis.
  SLM_DEVICE T* row(std::int64_t index) const { return data + index * strides[0]; }

  /// Entries [first, first + count) of the outermost axis.
  SLM_DEVICE View slice(std::int64_t first, std::int64_t count) const {
    View part = *this;
    part.data = row(first);
    part.extents[0] = count;
    return part;
  }

  SLM_DEVICE std::int64_t size() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < Rank; ++axis) count *= extents[axis];
    return count;
  }
};

}}
