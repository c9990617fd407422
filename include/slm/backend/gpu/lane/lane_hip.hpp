// DeviceLane for AMD: CDNA (gfx90a, waves of 64, MFMA) and RDNA3 (gfx11xx, waves of 32, WMMA).
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/fragments.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/core/types.hpp"

#if SLM_DEVICE_PASS

#if !defined(__GFX9__) && !defined(__GFX11__)
#error "slm supports AMD gfx90a, gfx940 and newer CDNA, and gfx11 (RDNA3)"
#endif

namespace slm { inline namespace v0_1 { namespace gpu {

/// Public members: the operations of a lane, see lane.hpp.
class DeviceLane {
 public:
#if defined(__GFX9__)
  using Matrix = Mfma16x16x16;
#else
  using Matrix = Wmma16x16x16;
#endif
  using Copy = CopyByRegisters;
  static constexpr int width = Matrix::lanes;

  explicit SLM_DEVICE DeviceLane(unsigned thread = threadIdx.x) : thread_(thread) {}

  SLM_DEVICE void forget_thread() { asm volatile("" : "+v"(thread_)); }

  SLM_DEVICE int thread() const { return static_cast<int>(thread_); }
  SLM_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  // Unsigned division, so that the compiler knows the results to be non-negative.
  SLM_DEVICE int wave() const { return __builtin_amdgcn_readfirstlane(static_cast<int>(thread_ / unsigned{width})); }
  SLM_DEVICE int waves() const { return static_cast<int>(blockDim.x / unsigned{width}); }
  SLM_DEVICE int lane_index() const { return static_cast<int>(thread_ % unsigned{width}); }
  SLM_DEVICE int block_x() const { return static_cast<int>(blockIdx.x); }
  SLM_DEVICE int block_y() const { return static_cast<int>(blockIdx.y); }
  SLM_DEVICE int block_z() const { return static_cast<int>(blockIdx.z); }

  static constexpr bool dependent = false;
  SLM_DEVICE void wait_for_previous_kernel() const {}  // kernels start after the previous one has ended

  static SLM_DEVICE void begin_kernel() {}
  static SLM_DEVICE void has_waited() {}

  SLM_DEVICE void barrier(Where = {}) const { __syncthreads(); }
  /// The hardware barrier covers all waves of a block, so this one counts waves in memory.
  SLM_DEVICE void barrier_of(int threads, int* word, Where = {}) const {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_wave_barrier();
    if (lane_index() == 0) {
      const unsigned waves = static_cast<unsigned>(threads / width);
      unsigned* const count = reinterpret_cast<unsigned*>(word);
      const unsigned before = __hip_atomic_fetch_add(count, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
      const unsigned wanted = before - before % waves + waves;
      while (__hip_atomic_load(count, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP) < wanted) {
        __builtin_amdgcn_s_sleep(1);
      }
    }
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  }
  /// The lanes of a wave run in lockstep and its shared memory accesses stay in order; this keeps the compiler from
  /// reordering.
  SLM_DEVICE void wave_barrier(Where = {}) const {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  }

  SLM_DEVICE float wave_sum(float value, Where = {}) const {
    SLM_UNROLL
    for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor(value, step, width);
    return value;
  }
  SLM_DEVICE float wave_max(float value, Where = {}) const {
    SLM_UNROLL
    for (int step = width / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor(value, step, width));
    return value;
  }
  template <class T>
  SLM_DEVICE T shuffle(T value, int from, Where = {}) const {
    return __shfl(value, from, width);
  }

  template <class Element>
  SLM_DEVICE FragmentC<Matrix> mma(const FragmentA<Matrix>& a, const FragmentB<Matrix>& b, const FragmentC<Matrix>& c,
                                   Where = {}) const {
    constexpr int run = Matrix::run;
    using Shorts = short __attribute__((ext_vector_type(run)));
    using Halves = _Float16 __attribute__((ext_vector_type(run)));
    using Floats = float __attribute__((ext_vector_type(Matrix::c_floats)));
    Floats sum = __builtin_bit_cast(Floats, c);
    if constexpr (std::is_same_v<Element, bfloat16_t>) {
      const Shorts x = __builtin_bit_cast(Shorts, a), y = __builtin_bit_cast(Shorts, b);
#if defined(__GFX9__)
      sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sum, 0, 0, 0);
#else
      sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, sum);
#endif
    } else {
      const Halves x = __builtin_bit_cast(Halves, a), y = __builtin_bit_cast(Halves, b);
#if defined(__GFX9__)
      sum = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
#else
      sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, sum);
#endif
    }
    return __builtin_bit_cast(FragmentC<Matrix>, sum);
  }

  SLM_DEVICE TilesA<Matrix> tiles_a(const std::uint32_t* tile, int row_words) const {
    return {tile, row_words, lane_index()};
  }
  SLM_DEVICE TilesTransposedA<Matrix> tiles_transposed_a(const std::uint32_t* tile, int row_words) const {
    return {tile, row_words, lane_index()};
  }
  SLM_DEVICE TilesB<Matrix> tiles_b(const std::uint32_t* tile, int row_words) const {
    return {tile, row_words, lane_index()};
  }

  static SLM_DEVICE void wait_for_copies() {}

  static SLM_DEVICE int atomic_add(int* address, int value) { return atomicAdd(address, value); }
  static SLM_DEVICE void fence() { __threadfence(); }
  static SLM_DEVICE void spin_until(const int* address, int value, Where = {}) {
    while (__hip_atomic_load(address, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < value) {
      __builtin_amdgcn_s_sleep(1);
    }
    fence();
  }
  /// A scalar load into registers shared by the wave. The cast through an integer is needed, since the compiler drops a
  /// cast back and forth.
  template <class T>
  static SLM_DEVICE const T& constant(const T* address) {
    using Constant = const __attribute__((address_space(4))) T;
    return *(const T*)(Constant*)reinterpret_cast<std::uintptr_t>(address);
  }

  template <class T>
  static SLM_DEVICE T load_stream(const T* address) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    // Declared as device memory: an address from a table could be shared memory, for which loads are slower.
    using Words = std::uint32_t __attribute__((ext_vector_type(sizeof(T) / 4)));
    using Global = const __attribute__((address_space(1))) Words;
    return __builtin_bit_cast(T, __builtin_nontemporal_load((Global*)address));
  }

  static SLM_DEVICE std::uint32_t put_bits(std::uint32_t word, std::uint32_t mask, std::uint32_t base) {
    return (word & mask) | base;
  }
  template <class T>
  static SLM_DEVICE T keep(T value) {
    return value;
  }

  static SLM_DEVICE int forget(int value) {
    asm volatile("" : "+v"(value));
    return value;
  }

  template <class Element>
  static SLM_DEVICE std::uint32_t pack2(float low, float high) {
    if constexpr (std::is_same_v<Element, bfloat16_t>) {
      return std::uint32_t{from_float<bfloat16_t>(low).bits} | std::uint32_t{from_float<bfloat16_t>(high).bits} << 16;
    } else {
      return narrow(low) | narrow(high) << 16;
    }
  }
  static SLM_DEVICE std::uint32_t pack2_within(float low, float high) {
    using Halves = _Float16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(std::uint32_t, Halves{static_cast<_Float16>(low), static_cast<_Float16>(high)});
  }
  template <int I, int J, int K, int M>
  static SLM_DEVICE std::uint32_t bytes(std::uint32_t low, std::uint32_t high) {
    return __builtin_amdgcn_perm(high, low, I | J << 8 | K << 16 | M << 24);
  }
  template <class Element>
  static SLM_DEVICE float unpack_low(std::uint32_t word) {
    if constexpr (std::is_same_v<Element, bfloat16_t>) return __builtin_bit_cast(float, word << 16);
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<std::uint16_t>(word)));
  }
  template <class Element>
  static SLM_DEVICE float unpack_high(std::uint32_t word) {
    if constexpr (std::is_same_v<Element, bfloat16_t>) return __builtin_bit_cast(float, word & 0xffff0000u);
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<std::uint16_t>(word >> 16)));
  }

 private:
  unsigned thread_;

  static SLM_DEVICE std::uint32_t narrow(float value) {
    value = value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value;  // NaN passes
    return __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value));
  }
};

}}}

#endif
