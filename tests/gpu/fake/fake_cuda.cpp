#include <cuda_runtime_api.h>

using Status = cudaError_t;
using StreamHandle = cudaStream_t;
using EventHandle = cudaEvent_t;
using CapturedHandle = cudaGraph_t;
using GraphHandle = cudaGraphExec_t;
using Properties = cudaDeviceProp;
using Direction = cudaMemcpyKind;
using CaptureMode = cudaStreamCaptureMode;
using PushResult = unsigned;

#define NAME(call) cuda##call
#define REGISTER(call) __cuda##call
#define HOST_MALLOC cudaHostAlloc
#define HOST_MALLOC_NAME "HostAlloc"
#define HOST_FREE cudaFreeHost
#define GRAPH_INSTANTIATE cudaGraphInstantiate

namespace {
constexpr int driver_version = 13000;
void set_architecture(Properties& properties) {
  properties.major = 9;
  properties.minor = 0;
}
}  // namespace

#include "gpu/fake/fake_vendor.inc"

extern "C" {
void __cudaRegisterFatBinaryEnd(void**) {}
char __cudaInitModule(void**) { return 1; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t,
                               cudaStream_t stream) {
  return fake::launched(reinterpret_cast<const void*>(kernel), grid, block, arguments, stream, false, false);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  ENTER("LaunchKernelExC");
  bool dependent = false, together = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    dependent |= config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                 config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    together |= config->attrs[i].id == cudaLaunchAttributeCooperative && config->attrs[i].val.cooperative != 0;
  }
  return fake::launched(kernel, config->gridDim, config->blockDim, arguments, config->stream, dependent, together);
}
}
