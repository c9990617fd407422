// MixedMatrix: a matrix whose storage type, codes or floating point, is known at run time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/dense_matrix.hpp"
#include "slm/formats/format.hpp"

namespace slm { inline namespace v0_1 {

/// Codes: the backend's matrix type for quantized codes, or empty if it has none.
template <class... Codes>
class MixedMatrix {
 public:
  using Held = std::variant<DenseMatrix<Fp32>, DenseMatrix<Fp16>, DenseMatrix<Bf16>, Codes...>;

  std::int64_t out = 0;
  std::int64_t in = 0;

  MixedMatrix() = default;

  template <class Matrix>
  explicit MixedMatrix(Matrix held) : out(held.out), in(held.in), held_(std::move(held)) {}

  /// Floating-point layers as stored; converted to fp32 if their types differ or some layers are quantized.
  static MixedMatrix dense(std::span<const LinearSource> sources) {
    std::vector<Tensor> tensors;
    for (const LinearSource& source : sources) {
      const auto* tensor = std::get_if<Tensor>(&source);
      if (tensor == nullptr || (!tensors.empty() && tensor->dtype != tensors.front().dtype)) {
        return MixedMatrix(DenseMatrix<Fp32>::stack(sources));
      }
      tensors.push_back(*tensor);
    }
    const std::span<const Tensor> all(tensors);
    switch (tensors.front().dtype) {
      case DType::f16: return MixedMatrix(DenseMatrix<Fp16>::stack(all));
      case DType::bf16: return MixedMatrix(DenseMatrix<Bf16>::stack(all));
      default: return MixedMatrix(DenseMatrix<Fp32>::stack(all));
    }
  }

  std::int64_t bytes() const {
    return visit([](const auto& held) { return held.bytes(); });
  }

  /// See DenseMatrix. Codes are always copies.
  bool in_file() const {
    return visit([](const auto& held) {
      if constexpr (requires { held.in_file(); }) return held.in_file();
      return false;
    });
  }

  /// Calls use(matrix) with the held matrix.
  template <class Use>
  decltype(auto) visit(Use&& use) const {
    return std::visit(std::forward<Use>(use), held_);
  }
  template <class Use>
  decltype(auto) visit(Use&& use) {
    return std::visit(std::forward<Use>(use), held_);
  }

 private:
  Held held_;
};

template <class Matrix>
inline constexpr bool is_mixed = false;
template <class... Codes>
inline constexpr bool is_mixed<MixedMatrix<Codes...>> = true;

}}
