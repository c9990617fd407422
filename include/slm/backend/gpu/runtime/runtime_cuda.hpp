// CudaApi: NVIDIA's runtime. Empty for compilers other than nvcc.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <string>

#include "slm/backend/gpu/runtime/runtime_vendor.hpp"
#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

struct CudaApi {
  static constexpr const char* name = "cuda";
  static constexpr const char* prefix = "cuda";
  static constexpr const char* vendor = "NVIDIA";
  static constexpr const char* advice =
      "Install NVIDIA's driver and check that nvidia-smi lists the device, or use another backend";
  static constexpr const char* architecture_option = "CMAKE_CUDA_ARCHITECTURES (nvcc -arch)";
  static constexpr const char* host_malloc = "HostAlloc";

  using Status = cudaError_t;
  using StreamHandle = cudaStream_t;
  using EventHandle = cudaEvent_t;
  using CapturedHandle = cudaGraph_t;
  using GraphHandle = cudaGraphExec_t;
  using Properties = cudaDeviceProp;
  using Direction = cudaMemcpyKind;
  using Extents = dim3;

  static constexpr Status success = cudaSuccess;
  static constexpr Status out_of_memory = cudaErrorMemoryAllocation;
  static constexpr Status not_ready = cudaErrorNotReady;
  static constexpr unsigned stream_flags = cudaStreamNonBlocking;
  static constexpr unsigned event_flags = cudaEventDefault;
  static constexpr auto capture_mode = cudaStreamCaptureModeThreadLocal;
  static constexpr Direction host_to_device = cudaMemcpyHostToDevice;
  static constexpr Direction device_to_host = cudaMemcpyDeviceToHost;
  static constexpr Direction device_to_device = cudaMemcpyDeviceToDevice;

  static bool no_device(Status status) {
    return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary;
  }
  static bool no_code(Status status) {
    return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
           status == cudaErrorUnsupportedPtxVersion || status == cudaErrorInvalidPtx ||
           status == cudaErrorJitCompilerNotFound;
  }
  static std::string architecture(const Properties& properties) {
    return text("sm_", properties.major, properties.minor);
  }
  static std::string driver() {
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess) return "unknown";
    return text("CUDA ", version / 1000, ".", version % 1000 / 10);
  }

  SLM_GPU_FORWARD_CALLS(cuda)
  static Status HostMalloc(void** pointer, std::size_t bytes) {
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
  }
  static Status HostFree(void* pointer) { return cudaFreeHost(pointer); }
  static Status GraphInstantiate(GraphHandle* graph, CapturedHandle captured) {
    return cudaGraphInstantiate(graph, captured, 0);
  }
  /// Start::dependent: the kernel may start when all blocks of the previous one have started, if that one permits it;
  /// every kernel of launch.hpp does. A capturing stream records it as a programmatic edge of the graph.
  static Status Launch(const void* kernel, Extents grid, Extents block, void** arguments, StreamHandle stream,
                       Start start) {
    cudaLaunchAttribute attribute{};
    if (start == Start::together) {
      attribute.id = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
    } else {
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = start == Start::in_turn ? 0 : 1;
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }
  static constexpr const char* launch(Start) { return "LaunchKernelExC"; }
  /// Drivers from 12.3 on record such edges.
  static bool dependent_launches() {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
  }
  static const char* GetErrorName(Status status) { return cudaGetErrorName(status); }
  static const char* GetErrorString(Status status) { return cudaGetErrorString(status); }
};

}}}

namespace slm { inline namespace v0_1 { namespace backend {

using CudaRuntime = gpu::VendorRuntime<gpu::CudaApi>;
static_assert(gpu::Runtime<CudaRuntime>);

}}}

#endif
