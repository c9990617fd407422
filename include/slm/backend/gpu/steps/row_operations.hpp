// RowOperations: operations of a step on single rows as launches: factors, sums and norms.
#pragma once

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/recurrence.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/steps/step_arguments.hpp"
#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Base of a step. Step has launch<K>(args).
/// Public members: operations of the concepts StepOf, RecurrentStep and ShapesLayers.
template <class Step>
class RowOperations {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  void scale(Rows x, float factor) { launch<ScaleRows>({memory(x), width_of(x), count_of(x), factor}); }

  void add(ConstRows branch, Norm norm, Rows x) {
    const int width = width_of(x);
    launch<AddNormedRows>({memory(branch), memory(x), width, count_of(x), norm_args(norm, width)});
  }

  void normalize(Rows x, Norm norm) {
    const int width = width_of(x);
    launch<NormalizeRows>({memory(x), width, count_of(x), norm_args(norm, width)});
  }

  void gate(Rows x, ConstRows by) { launch<GateBySigmoid>({memory(x), memory(by), width_of(x), count_of(x)}); }

  void multiply_rows(Rows x, ConstRows factors) {
    launch<MultiplyRows>({memory(x), memory(factors), width_of(x), count_of(x), static_cast<int>(factors.stride(0))});
  }

 private:
  template <class K>
  void launch(const typename K::Args& args) {
    static_cast<Step&>(*this).template launch<K>(args);
  }

  static int width_of(const Rows& x) { return static_cast<int>(x.extent(1)); }
  static int count_of(const Rows& x) { return static_cast<int>(x.extent(0)); }
};

}}}
