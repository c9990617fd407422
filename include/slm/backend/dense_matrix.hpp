// DenseMatrix: stacks rows of checkpoint tensors into one matrix, without a copy if their type matches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slm/core/tensor.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/int4_rows.hpp"

namespace slm { inline namespace v0_1 {

/// Rows of [q; k; v] or [gate; up] as one matrix [out, in]. Tensors of the format's type are referenced, others are
/// converted once.
template <DenseFormat Format>
class DenseMatrix {
 public:
  using Element = typename Format::Element;

  struct Segment {
    const Element* data = nullptr;  // [rows, in]
    std::int64_t rows = 0;
    std::shared_ptr<const void> owner;  // owns memory outside the checkpoint's file
  };

  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<Segment> segments;

  /// tensors: each [rows, in] with the same `in`.
  static DenseMatrix stack(std::span<const Tensor> tensors) {
    DenseMatrix matrix;
    matrix.in = tensors.front().shape.at(1);
    for (const Tensor& tensor : tensors) {
      Segment segment{
          .data = reinterpret_cast<const Element*>(tensor.bytes), .rows = tensor.shape.at(0), .owner = tensor.owner};
      const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.bytes) % alignof(Element) == 0;
      if (tensor.dtype != Format::dtype || !aligned) {
        auto converted = std::make_unique_for_overwrite<Element[]>(static_cast<std::size_t>(tensor.elements()));
        convert(tensor, 0, tensor.elements(), converted.get());
        segment.data = converted.get();
        segment.owner = std::move(converted);
      }
      matrix.out += segment.rows;
      matrix.segments.push_back(std::move(segment));
    }
    return matrix;
  }

  /// Weight bytes that one product reads.
  std::int64_t bytes() const { return out * in * static_cast<std::int64_t>(sizeof(Element)); }

  /// Whether any segment refers to the checkpoint's mapped bytes.
  bool in_file() const {
    return std::any_of(segments.begin(), segments.end(), [](const Segment& segment) { return !segment.owner; });
  }

  /// Overload for layers that may be 4-bit. Those are dequantized to fp32, then rounded to the format.
  static DenseMatrix stack(std::span<const LinearSource> sources) {
    DenseMatrix matrix;
    matrix.in = in_features(sources.front());
    for (const LinearSource& source : sources) {
      if (const auto* tensor = std::get_if<Tensor>(&source)) {
        const Tensor one[] = {*tensor};
        matrix.segments.push_back(std::move(stack(one).segments.front()));
      } else {
        const Int4Tensor& int4 = std::get<Int4Tensor>(source);
        auto weights = std::make_unique_for_overwrite<Element[]>(static_cast<std::size_t>(int4.out * int4.in));
        dequantize(int4, weights.get());
        const Element* const data = weights.get();
        matrix.segments.push_back({.data = data, .rows = int4.out, .owner = std::move(weights)});
      }
      matrix.out += out_features(source);
    }
    return matrix;
  }

  /// Copies all segments contiguously into memory from take(bytes), which returns a std::shared_ptr<std::byte>.
  template <class Take>
  void move_to(Take&& take) {
    const std::shared_ptr<std::byte> memory = take(static_cast<std::size_t>(bytes()));
    Element* const begin = reinterpret_cast<Element*>(memory.get());
    Element* next = begin;
    for (const Segment& segment : segments) next = std::copy_n(segment.data, segment.rows * in, next);
    segments.assign(1, Segment{.data = begin, .rows = out, .owner = memory});
  }

  const Element* row(std::int64_t index) const {
    for (const Segment& segment : segments) {
      if (index < segment.rows) return segment.data + index * in;
      index -= segment.rows;
    }
    return nullptr;
  }
};

}}
