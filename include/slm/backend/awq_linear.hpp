// AwqLinear: a single linear layer of an AWQ checkpoint, in any published layout.
#pragma once

#include <algorithm>
#include <utility>

#include "slm/backend/select.hpp"
#include "slm/core/error.hpp"
#include "slm/core/view.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/int4_check.hpp"

namespace slm { inline namespace v0_1 {

/// Computes y += x . weight^T. Only the constructor needs the layer's tensors.
template <class B = DefaultBackend>
class AwqLinear {
 public:
  /// Throws the errors of check_int4 if the tensors do not fit the layer.
  explicit AwqLinear(const Int4Tensor& layer, B device = {}) : device_(std::move(device)) {
    check_int4(layer, layer.name);
    const LinearSource sources[] = {layer};
    weight_ = device_.template pack<AwqInt4<>>(sources);
  }

  /// x [rows, in], y [rows, out], in the backend's memory; any number of rows. Throws backend.wrong-shape.
  void multiply_add(View<const typename B::Activation, 2> x, View<typename B::Activation, 2> y) {
    if (x.extent(0) != y.extent(0) || x.extent(1) != weight_.in || y.extent(1) != weight_.out) {
      throw Error("backend.wrong-shape",
                  text("expected x [rows, ", weight_.in, "] and y [rows, ", weight_.out, "], found [", x.extent(0),
                       ", ", x.extent(1), "] and [", y.extent(0), ", ", y.extent(1), "]"),
                  "Pass one row of x and of y per token");
    }
    for (std::int64_t first = 0; first < x.extent(0); first += B::max_rows) {
      const std::int64_t count = std::min<std::int64_t>(B::max_rows, x.extent(0) - first);
      device_.begin(StepPlan{}).project(x.slice(first, count), Linear{weight_}, y.slice(first, count));
    }
  }

 private:
  B device_;
  typename B::template Matrix<AwqInt4<>> weight_;
};

}}
