// The runtime of this test's vendor, over the library that records calls.
#pragma once

#include <catch2/catch.hpp>

#include "gpu/fake/fake.hpp"
#include "slm/backend/gpu/runtime/runtime_cuda.hpp"
#include "slm/backend/gpu/runtime/runtime_hip.hpp"

namespace fake {

#if defined(__CUDACC__)
using Api = slm::gpu::CudaApi;
using Runtime = slm::backend::CudaRuntime;
#else
using Api = slm::gpu::HipApi;
using Runtime = slm::backend::HipRuntime;
#endif

/// Clears earlier calls, and checks at the end that all objects are freed.
struct Fresh {
  Fresh() { reset(); }
  ~Fresh() { CHECK(library().live == 0); }
};

}  // namespace fake
