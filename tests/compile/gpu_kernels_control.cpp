// Kernels that the check of machine code must reject: one spills, one lacks its matrix instructions, one loads adjacent
// floats one by one, against code_bounds_control.txt.
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

__global__ void narrow_loads(const float* __restrict__ in, float* out, int rounds, int stride) {
  float sum = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const volatile float* from = in + round * stride + 4 * threadIdx.x;
    sum += from[0] * from[1] + from[2] * from[3];
  }
  out[threadIdx.x] = sum;
}

__global__ void wide_loads(const float4* __restrict__ in, float* out, int rounds, int stride) {
  float sum = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const float4 four = in[round * stride + threadIdx.x];
    sum += four.x * four.y + four.z * four.w;
  }
  out[threadIdx.x] = sum;
}

}  // namespace planted
