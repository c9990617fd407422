// HipApi: AMD's runtime, HIP 5.2 or newer. Empty for compilers other than clang for HIP.
#pragma once

#if defined(__HIP__)

#include <hip/hip_runtime.h>

#include <string>

#include "slm/backend/gpu/runtime/runtime_vendor.hpp"
#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

struct HipApi {
  static constexpr const char* name = "hip";
  static constexpr const char* prefix = "hip";
  static constexpr const char* vendor = "AMD";
  static constexpr const char* advice =
      "Install AMD's driver, check that rocminfo lists the device and that you may open /dev/kfd, or use another "
      "backend";
  static constexpr const char* architecture_option = "CMAKE_HIP_ARCHITECTURES (clang++ --offload-arch)";
  static constexpr const char* host_malloc = "HostMalloc";

  using Status = hipError_t;
  using StreamHandle = hipStream_t;
  using EventHandle = hipEvent_t;
  using CapturedHandle = hipGraph_t;
  using GraphHandle = hipGraphExec_t;
  using Properties = hipDeviceProp_t;
  using Direction = hipMemcpyKind;
  using Extents = dim3;

  static constexpr Status success = hipSuccess;
  static constexpr Status out_of_memory = hipErrorMemoryAllocation;
  static constexpr Status not_ready = hipErrorNotReady;
  static constexpr unsigned stream_flags = hipStreamNonBlocking;
  static constexpr unsigned event_flags = hipEventDefault;
  static constexpr auto capture_mode = hipStreamCaptureModeThreadLocal;
  static constexpr Direction host_to_device = hipMemcpyHostToDevice;
  static constexpr Direction device_to_host = hipMemcpyDeviceToHost;
  static constexpr Direction device_to_device = hipMemcpyDeviceToDevice;

  static bool no_device(Status status) { return status == hipErrorNoDevice || status == hipErrorInsufficientDriver; }
  static bool no_code(Status status) {
    return status == hipErrorNoBinaryForGpu || status == hipErrorInvalidDeviceFunction ||
           status == hipErrorInvalidImage || status == hipErrorSharedObjectInitFailed;
  }
  static std::string architecture(const Properties& properties) {
    const std::string whole = properties.gcnArchName;  // "gfx90a:sramecc+:xnack-"
    return whole.substr(0, whole.find(':'));
  }
  static std::string driver() {
    int version = 0;
    if (hipDriverGetVersion(&version) != hipSuccess) return "unknown";
    return text("HIP ", version / 10000000, ".", version / 100000 % 100);
  }

  SLM_GPU_FORWARD_CALLS(hip)
  static Status HostMalloc(void** pointer, std::size_t bytes) {
    return hipHostMalloc(pointer, bytes, hipHostMallocDefault);
  }
  static Status HostFree(void* pointer) { return hipHostFree(pointer); }
  static Status GraphInstantiate(GraphHandle* graph, CapturedHandle captured) {
    return hipGraphInstantiateWithFlags(graph, captured, 0);
  }
  static Status Launch(const void* kernel, Extents grid, Extents block, void** arguments, StreamHandle stream,
                       Start start) {
    if (start == Start::together) return hipLaunchCooperativeKernel(kernel, grid, block, arguments, 0u, stream);
    return hipLaunchKernel(kernel, grid, block, arguments, std::size_t{0}, stream);
  }
  static constexpr const char* launch(Start start) {
    return start == Start::together ? "LaunchCooperativeKernel" : "LaunchKernel";
  }
  static bool dependent_launches() { return false; }
  static const char* GetErrorName(Status status) { return hipGetErrorName(status); }
  static const char* GetErrorString(Status status) { return hipGetErrorString(status); }
};

}}}

namespace slm { inline namespace v0_1 { namespace backend {

using HipRuntime = gpu::VendorRuntime<gpu::HipApi>;
static_assert(gpu::Runtime<HipRuntime>);

}}}

#endif
