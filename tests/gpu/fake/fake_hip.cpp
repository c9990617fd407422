#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1
#include <hip/hip_runtime_api.h>

using Status = hipError_t;
using StreamHandle = hipStream_t;
using EventHandle = hipEvent_t;
using CapturedHandle = hipGraph_t;
using GraphHandle = hipGraphExec_t;
using Properties = hipDeviceProp_t;
using Direction = hipMemcpyKind;
using CaptureMode = hipStreamCaptureMode;
using PushResult = hipError_t;

#define NAME(call) hip##call
#define REGISTER(call) __hip##call
#define HOST_MALLOC hipHostMalloc
#define HOST_MALLOC_NAME "HostMalloc"
#define HOST_FREE hipHostFree
#define GRAPH_INSTANTIATE hipGraphInstantiateWithFlags

#include <cstring>

namespace {
constexpr int driver_version = 50221153;
void set_architecture(Properties& properties) { std::strcpy(properties.gcnArchName, "gfx90a:sramecc+:xnack-"); }
}  // namespace

#include "gpu/fake/fake_vendor.inc"

extern "C" hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t,
                                      hipStream_t stream) {
  ENTER("LaunchKernel");
  return fake::launched(kernel, grid, block, arguments, stream, false, false);
}
extern "C" hipError_t hipLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, unsigned,
                                                 hipStream_t stream) {
  ENTER("LaunchCooperativeKernel");
  return fake::launched(kernel, grid, block, arguments, stream, false, true);
}
