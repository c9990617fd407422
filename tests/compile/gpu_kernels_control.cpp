// Kernels that the check of machine code must find fault with: one spills, one lacks its matrix instructions.
#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include <hip/hip_runtime.h>
#endif

namespace planted {

__global__ __launch_bounds__(1024, 2) void spilling(const float* in, float* out, int rounds) {
  float values[224];
#pragma unroll
  for (int i = 0; i < 224; ++i) values[i] = in[i * 1024 + threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 224; ++i) values[i] = values[i] * values[(i + 1) % 224] + in[round];
  }
#pragma unroll
  for (int i = 0; i < 224; ++i) out[i * 1024 + threadIdx.x] = values[i];
}

__global__ void PlantedMatrix_by_hand(const float* in, float* out) { out[threadIdx.x] = in[threadIdx.x] * in[0]; }

}  // namespace planted
