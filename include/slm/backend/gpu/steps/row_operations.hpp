// RowOperations: operations of a step on single rows as launches: factors, sums, norms and residual streams.
#pragma once

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/recurrence.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/kernels/streams.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/steps/step_arguments.hpp"
#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Base of a step. Step has launch<K>(args).
/// Public members: operations of the concepts StepOf, RecurrentStep, ShapesLayers and MixesStreams.
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
    launch<NormalizeRows>({memory(x), width, count_of(x), static_cast<int>(x.stride(0)), norm_args(norm, width)});
  }

  void gate(Rows x, ConstRows by) { launch<GateBySigmoid>({memory(x), memory(by), width_of(x), count_of(x)}); }

  void multiply_rows(Rows x, ConstRows factors) {
    launch<MultiplyRows>({memory(x), memory(factors), width_of(x), count_of(x), static_cast<int>(factors.stride(0))});
  }

  void copy_rows(ConstRows x, Rows to) {
    launch<SelectRows>(
        {.x = memory(x), .outputs = {}, .out = memory(to), .width = width_of(to), .count = count_of(to)});
  }

  void match_rows(Rows x, ConstRows like) { launch<MatchRows>({memory(x), memory(like), width_of(x), count_of(x)}); }

  void mix_streams(Rows streams, ConstRows weights) { launch<MixStreams>(streams_args(streams, weights, {})); }

  void correct_streams(Rows streams, ConstRows factors, ConstRows x) {
    launch<CorrectStreams>(streams_args(streams, factors, x));
  }

  void gate_some(ConstRows gate_up, float cutoff, Activation activation, Rows out) {
    launch<GateSomeRows>({memory(gate_up), memory(out), width_of(out), count_of(out), activation, cutoff});
  }

 private:
  template <class K>
  void launch(const typename K::Args& args) {
    static_cast<Step&>(*this).template launch<K>(args);
  }

  static StreamsArgs streams_args(const Rows& streams, const ConstRows& weights, const ConstRows& x) {
    const int rows = static_cast<int>(weights.extent(0));
    return {memory(streams), memory(weights), memory(x), width_of(streams), rows, count_of(streams) / rows};
  }

  static int width_of(const Rows& x) { return static_cast<int>(x.extent(1)); }
  static int count_of(const Rows& x) { return static_cast<int>(x.extent(0)); }
};

}}}
