// DefaultBackend: the backend for programs that name none. The compiler selects it: nvcc NVIDIA GPUs, clang for HIP AMD
// GPUs, others the CPU. Every compiler also compiles the CPU backend, so that a draft can run there.
#pragma once

#include "slm/backend/cpu/cpu.hpp"

#if defined(__CUDACC__) && defined(__HIP__)
#error "slm: one source cannot be compiled for CUDA and HIP at once: use a separate build tree for each"
#elif defined(__CUDACC__)
#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_cuda.hpp"
#elif defined(__HIP__)
#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_hip.hpp"
#endif

namespace slm { inline namespace v0_1 {

#if defined(__CUDACC__)
namespace backend {
using Cuda = Gpu<CudaRuntime>;
static_assert(Backend<Cuda>);
}  // namespace backend
using DefaultBackend = backend::Cuda;
#elif defined(__HIP__)
namespace backend {
using Hip = Gpu<HipRuntime>;
static_assert(Backend<Hip>);
}  // namespace backend
using DefaultBackend = backend::Hip;
#else
using DefaultBackend = backend::Cpu;
#endif

}}
