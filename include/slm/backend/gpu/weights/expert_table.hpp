// ExpertTable: the matrices of a layer's experts in device memory, where kernels find those of the chosen experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/backend/mixture.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// One matrix of each expert of a layer. Matrices of one format and shape have one layout, which is an argument of
/// kernels: a layer has one, or a second for its shared expert. A matrix of a rank without rows has none.
template <Runtime R>
class ExpertMatrices {
 public:
  ExpertMatrices() = default;

  /// matrix_of and bias_of: of an expert.
  template <class Matrix, class MatrixOf, class BiasOf>
  ExpertMatrices(R runtime, typename R::Stream& stream, std::span<const Expert<Matrix>> experts, MatrixOf matrix_of,
                 BiasOf bias_of) {
    std::vector<ExpertWeight> weights;
    for (std::size_t e = 0; e < experts.size(); ++e) {
      const Matrix& matrix = matrix_of(experts[e]);
      if (matrix.out == 0) {
        weights.push_back({{}, {}, -1});
        continue;
      }
      std::size_t layout = 0;
      while (layout < first_of_.size() && !matrix.has_layout_of(matrix_of(experts[first_of_[layout]]))) ++layout;
      if (layout == first_of_.size()) first_of_.push_back(e);
      weights.push_back({matrix.tiles().words, gpu::memory(bias_of(experts[e]), matrix.out), static_cast<int>(layout)});
    }
    weights_ = std::make_shared<DeviceBuffer<ExpertWeight, R>>(runtime, weights.size());
    runtime.copy_in(weights_->data(), weights.data(), weights.size() * sizeof(ExpertWeight), stream);
    runtime.synchronize(stream);
  }

  Memory<const ExpertWeight> memory() const { return weights_->memory(); }
  /// The first expert with each layout.
  std::span<const std::size_t> first_of_layouts() const { return first_of_; }

 private:
  std::shared_ptr<DeviceBuffer<ExpertWeight, R>> weights_;
  std::vector<std::size_t> first_of_;
};

template <Runtime R>
struct ExpertTable {
  ExpertMatrices<R> gate_up, down;

  ExpertTable() = default;
  template <class Matrix>
  ExpertTable(R runtime, typename R::Stream& stream, std::span<const Expert<Matrix>> experts)
      : gate_up(
            runtime, stream, experts, [](const auto& e) -> const Matrix& { return e.gate_up; },
            [](const auto& e) { return e.gate_up_bias; }),
        down(
            runtime, stream, experts, [](const auto& e) -> const Matrix& { return e.down; },
            [](const auto& e) { return e.down_bias; }) {}
};

}}}
