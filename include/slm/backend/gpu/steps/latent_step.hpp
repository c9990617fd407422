// The products of the heads of latent attention as launches.
#pragma once

#include <cstdint>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/heads.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// AttendsLatents::multiply_heads
template <class State, class Matrix>
void run_head_products(State& state, View<const float, 2> x, const Matrix& weight, int heads, View<float, 2> out) {
  const HeadProducts shape(x, weight, heads, out);
  const int rows = static_cast<int>(x.extent(0)), in = static_cast<int>(weight.in);
  const std::int64_t size = x.extent(0) * heads * weight.in;
  const Memory<float> inputs{state.grow(state.scratch, size), size};
  const int out_width = static_cast<int>(shape.out_width), out_stride = static_cast<int>(out.stride(0));
  state.template launch<SplitHeads>({.x = memory(x),
                                     .inputs = inputs,
                                     .out = memory(out),
                                     .rows = rows,
                                     .heads = heads,
                                     .width = static_cast<int>(shape.width),
                                     .in = in,
                                     .kept = static_cast<int>(shape.kept),
                                     .out_width = out_width,
                                     .x_stride = static_cast<int>(x.stride(0)),
                                     .out_stride = out_stride});
  weight.visit([&]<class Format>(Format) {
    state.template launch<ProductHeads<Format>>({.weight = weight.tiles(),
                                                 .inputs = inputs,
                                                 .out = memory(out),
                                                 .rows = rows,
                                                 .heads = heads,
                                                 .outputs = static_cast<int>(shape.outputs),
                                                 .out_width = out_width,
                                                 .out_stride = out_stride});
  });
}

}}}
