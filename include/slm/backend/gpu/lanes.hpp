// The GPU backend on emulated devices.
#pragma once

#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_lanes.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

using Lanes32 = Gpu<LanesRuntime<gpu::MmaSync16x8x16>>;  // like NVIDIA GPUs: 32 lanes, mma.sync
using Lanes64 = Gpu<LanesRuntime<gpu::Mfma16x16x16>>;    // like AMD MI250: 64 lanes, MFMA
using LanesRdna = Gpu<LanesRuntime<gpu::Wmma16x16x16>>;  // like AMD Radeon: 32 lanes, WMMA

static_assert(Backend<Lanes32> && Backend<Lanes64> && Backend<LanesRdna>);

}}}
