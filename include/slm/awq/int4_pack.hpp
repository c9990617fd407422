// pack_int4: packs the codes of a layer as the tensors of a published layout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/finite.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

/// A tensor that owns its bytes; copies share them.
struct OwnedTensor : Tensor {
  std::shared_ptr<std::byte[]> storage;

  /// Zero-initialised.
  OwnedTensor(std::string tensor_name, DType type, std::vector<std::int64_t> extents) {
    name = std::move(tensor_name);
    dtype = type;
    shape = std::move(extents);
    size_bytes = static_cast<std::size_t>(elements()) * bytes_of(dtype);
    storage = std::shared_ptr<std::byte[]>(new std::byte[size_bytes]());
    bytes = storage.get();
  }

  template <class T>
  void set(std::int64_t index, T value) {
    std::memcpy(storage.get() + index * std::int64_t{sizeof value}, &value, sizeof value);
  }

  /// Stores a float in the tensor's floating-point type, rounded to nearest.
  void set_float(std::int64_t index, float value) {
    if (dtype == DType::f16) {
      set(index, from_float<half_t>(value));
    } else if (dtype == DType::bf16) {
      set(index, from_float<bfloat16_t>(value));
    } else {
      set(index, value);
    }
  }
};

/// Output layout of a layer.
struct Int4Packing {
  Int4Layout layout = Int4Layout::awq_gemm;
  DType scale_dtype = DType::f16;  // scales are rounded to this type: round them before choosing codes
  bool symmetric = false;          // every zero point is 8; omits zeros if the layout allows it
  bool twos_complement = false;    // Quark's int4
  bool zeros_less_one = false;     // GPTQ's first version
};

namespace detail {

class Int4Packer {
 public:
  Int4Packer(const Int4Rows& rows, const std::string& module, const Int4Packing& packing)
      : rows_(rows),
        module_(module),
        packing_(packing),
        shapes_(shapes_of(packing.layout, rows.rows, rows.in, rows.group)),
        order_(nibble_order(packing.layout)) {}

  std::vector<OwnedTensor> run() const {
    std::vector<OwnedTensor> tensors{codes(), scales()};
    if (!leaves_zeros_out()) tensors.push_back(zeros());
    if (packing_.layout == Int4Layout::packed_rows) {
      OwnedTensor& shape = tensors.emplace_back(module_ + ".weight_shape", DType::i64, std::vector<std::int64_t>{2});
      shape.set(0, rows_.rows);
      shape.set(1, rows_.in);
    }
    return tensors;
  }

 private:
  bool is_quark() const {
    return packing_.layout == Int4Layout::quark_order || packing_.layout == Int4Layout::quark_reorder;
  }
  /// AutoAWQ's readers require the tensor; others recognise symmetric layers by its absence.
  bool leaves_zeros_out() const {
    return packing_.symmetric && (packing_.layout == Int4Layout::packed_rows || is_quark());
  }
  std::uint32_t flip() const { return packing_.twos_complement ? 0x88888888u : 0; }

  std::uint32_t code(std::int64_t n, std::int64_t k) const {
    const bool inside = n < rows_.rows && k < rows_.in;
    return inside ? rows_.codes[static_cast<std::size_t>(n * rows_.in + k)] : 0u;
  }
  std::uint32_t zero(std::int64_t n, std::int64_t g) const {
    const bool inside = n < rows_.rows && g < rows_.groups();
    return inside ? rows_.zeros[static_cast<std::size_t>(n * rows_.groups() + g)] : 0u;
  }
  float scale(std::int64_t n, std::int64_t g) const {
    return rows_.scales[static_cast<std::size_t>(n * rows_.groups() + g)];
  }

  /// Packs eight nibbles: nibble i is value(i).
  template <class Value>
  std::uint32_t word(Value&& value) const {
    std::uint32_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= value(i) << (4 * i);
    return bits ^ flip();
  }

  int order(int nibble) const { return order_[static_cast<std::size_t>(nibble)]; }

  OwnedTensor codes() const {
    const bool packed_rows = packing_.layout == Int4Layout::packed_rows;
    OwnedTensor tensor(module_ + (packed_rows  ? ".weight_packed"
                                  : is_quark() ? ".weight"
                                               : ".qweight"),
                       shapes_.code_dtype, shapes_.codes);
    const std::int64_t width = shapes_.codes[1];
    switch (packing_.layout) {
      case Int4Layout::awq_gemm:
      case Int4Layout::quark_order:
      case Int4Layout::quark_reorder:
        for (std::int64_t c = 0; c < width; ++c) {
          for (std::int64_t k = 0; k < rows_.in; ++k) {
            tensor.set(k * width + c, word([&](int i) { return code(8 * c + order(i), k); }));
          }
        }
        break;
      case Int4Layout::awq_gemv:
      case Int4Layout::packed_rows:
        for (std::int64_t n = 0; n < rows_.rows; ++n) {
          for (std::int64_t c = 0; c < width; ++c) {
            tensor.set(n * width + c, word([&](int i) { return code(n, 8 * c + i); }));
          }
        }
        break;
      case Int4Layout::gptq:
        for (std::int64_t r = 0; r < shapes_.codes[0]; ++r) {
          for (std::int64_t n = 0; n < width; ++n) {
            tensor.set(r * width + n, word([&](int i) { return code(n, 8 * r + i); }));
          }
        }
        break;
      case Int4Layout::awq_gemv_fast:
        for (std::int64_t n = 0; n < rows_.rows; ++n) {
          for (std::int64_t k = 0; k < rows_.in; k += 32) {
            for (int i = 0; i < 8; ++i) {
              std::uint32_t bits = 0;
              for (int nibble = 0; nibble < 4; ++nibble) bits |= code(n, k + 8 * nibble + i) << (4 * nibble);
              tensor.set(n / 4 * width + k / 64 * 64 + n % 4 * 16 + k % 64 / 4 + i,
                         static_cast<std::uint16_t>(bits ^ flip()));
            }
          }
        }
        break;
    }
    return tensor;
  }

  bool rows_first() const {
    return packing_.layout == Int4Layout::awq_gemv || packing_.layout == Int4Layout::packed_rows;
  }
  std::int64_t at(const std::vector<std::int64_t>& shape, std::int64_t n, std::int64_t g) const {
    return rows_first() ? n * shape[1] + g : g * shape[1] + n;
  }

  OwnedTensor scales() const {
    const bool awq = !is_quark() && packing_.layout != Int4Layout::packed_rows;
    OwnedTensor tensor(module_ + (awq ? ".scales" : ".weight_scale"), packing_.scale_dtype, shapes_.scales);
    for (std::int64_t n = 0; n < rows_.rows; ++n) {
      for (std::int64_t g = 0; g < rows_.groups(); ++g) tensor.set_float(at(shapes_.scales, n, g), scale(n, g));
    }
    if (const auto index = first_non_finite(tensor)) {
      throw Error("quant.scale-overflow",
                  text("layer '", module_, "': expected scales that are finite as ", name_of(packing_.scale_dtype)),
                  "Write the scales as BF16, which compressed-tensors allows");
    }
    return tensor;
  }

  OwnedTensor zeros() const {
    const bool awq = !is_quark() && packing_.layout != Int4Layout::packed_rows;
    const bool integers = has_integer_zeros(packing_.layout);
    OwnedTensor tensor(module_ + (awq ? ".qzeros" : ".weight_zero_point"), integers ? DType::i32 : packing_.scale_dtype,
                       shapes_.zeros);
    const std::int64_t width = shapes_.zeros[1];
    if (!integers) {
      for (std::int64_t n = 0; n < rows_.rows; ++n) {
        for (std::int64_t g = 0; g < rows_.groups(); ++g) {
          float rounded = 0;  // the zero point is scaled by the stored scale
          OwnedTensor one({}, packing_.scale_dtype, {1});
          one.set_float(0, scale(n, g));
          convert(one, 0, 1, &rounded);
          tensor.set_float(at(shapes_.zeros, n, g), -rounded * static_cast<float>(zero(n, g)));
        }
      }
      return tensor;
    }
    for (std::int64_t row = 0; row < shapes_.zeros[0]; ++row) {
      for (std::int64_t c = 0; c < width; ++c) {
        tensor.set(row * width + c, word([&](int i) {
                                      if (packing_.layout == Int4Layout::awq_gemv) return zero(row, 8 * c + i);
                                      if (packing_.layout == Int4Layout::packed_rows) return zero(8 * row + i, c);
                                      return zero(8 * c + order(i), row);
                                    }) - (packing_.zeros_less_one ? 0x11111111u : 0));
      }
    }
    return tensor;
  }

  const Int4Rows& rows_;
  const std::string& module_;
  Int4Packing packing_;
  Int4Shapes shapes_;
  NibbleOrder order_;
};

}  // namespace detail

/// The tensors of a whole layer, named below `module`: codes, scales, zero points unless omitted, and others that the
/// layout requires. Throws Error if the layout cannot hold the layer, or the dtype its scales.
inline std::vector<OwnedTensor> pack_int4(const Int4Rows& rows, const std::string& module,
                                          const Int4Packing& packing = {}) {
  const auto refuse = [&](const std::string& what) {
    return Error("quant.not-packable", text("layer '", module, "' [", rows.rows, ", ", rows.in, "]: ", what),
                 "Use another group size or layout, or keep the layer in floating point");
  };
  if (rows.rows < 1 || rows.in < 1 || rows.group < 1 || rows.in % rows.group != 0) {
    throw refuse(text("groups of ", rows.group, " do not divide its inputs"));
  }
  const auto size = [&](std::int64_t width) { return static_cast<std::size_t>(rows.rows * width); };
  if (rows.codes.size() != size(rows.in) || rows.zeros.size() != size(rows.groups()) ||
      rows.scales.size() != rows.zeros.size()) {
    throw refuse("expected codes, zeros and scales of this size");
  }
  if (const auto what = misfit(packing.layout, rows.rows, rows.in); !what.empty()) {
    throw refuse(text(what, ", as the layout ", name_of(packing.layout), " needs"));
  }
  if (!is_floating_point(packing.scale_dtype)) throw refuse("expected a floating-point type for scales");
  const auto beyond = [](std::uint8_t value) { return value > 15; };
  if (std::any_of(rows.codes.begin(), rows.codes.end(), beyond) ||
      std::any_of(rows.zeros.begin(), rows.zeros.end(), beyond)) {
    throw refuse("expected codes and zero points of at most 15");
  }
  const auto is_not_8 = [](std::uint8_t value) { return value != 8; };
  if (packing.symmetric && std::any_of(rows.zeros.begin(), rows.zeros.end(), is_not_8)) {
    throw refuse("expected zero point 8 for every group of a symmetric layer");
  }
  return detail::Int4Packer(rows, module, packing).run();
}

}}
