// DeviceLane for NVIDIA, sm_80 and newer.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/core/types.hpp"

#if SLM_DEVICE_PASS

namespace slm { inline namespace v0_1 { namespace gpu {

/// Public members: the operations of a lane, see lane.hpp.
class DeviceLane {
 public:
  using Matrix = MmaSync16x8x16;

  // See fragments.hpp; each lane supplies the address of a 16-byte row.
  struct TilesA {
    std::uint32_t address;
    SLM_DEVICE FragmentA<Matrix> load(int distance) const {
      FragmentA<Matrix> a;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
                   : "r"(address + 4 * distance)
                   : "memory");
      return a;
    }
  };
  struct TilesTransposedA {
    std::uint32_t address;
    SLM_DEVICE FragmentA<Matrix> load(int distance) const {
      FragmentA<Matrix> a;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
                   : "r"(address + 4 * distance)
                   : "memory");
      return a;
    }
  };
  struct TilesB {
    std::uint32_t address;
    SLM_DEVICE FragmentB<Matrix> load(int distance) const {
      FragmentB<Matrix> b;
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                   : "=r"(b.word[0]), "=r"(b.word[1])
                   : "r"(address + 4 * distance)
                   : "memory");
      return b;
    }
  };

  struct Copy {
    SLM_DEVICE void begin(std::uint32_t* to, const std::uint32_t* from) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :
                   : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
                   : "memory");
    }
    SLM_DEVICE void end(std::uint32_t*) {}
  };

  static constexpr int width = 32;

  explicit SLM_DEVICE DeviceLane(unsigned thread = threadIdx.x) : thread_(thread) {}

  SLM_DEVICE void forget_thread() { thread_ = keep(thread_); }

  SLM_DEVICE int thread() const { return static_cast<int>(thread_); }
  SLM_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  // Unsigned division, so that the compiler knows the results to be non-negative.
  SLM_DEVICE int wave() const { return static_cast<int>(thread_ / unsigned{width}); }
  SLM_DEVICE int waves() const { return static_cast<int>(blockDim.x / unsigned{width}); }
  SLM_DEVICE int lane_index() const { return static_cast<int>(thread_ % unsigned{width}); }
  SLM_DEVICE int block_x() const { return static_cast<int>(blockIdx.x); }
  SLM_DEVICE int block_y() const { return static_cast<int>(blockIdx.y); }
  SLM_DEVICE int block_z() const { return static_cast<int>(blockIdx.z); }

  /// Whether this code supports dependent launches: it waits where required.
  static constexpr bool dependent = __CUDA_ARCH__ >= 900;

  /// The next kernel may start once all blocks of this one have reached this point. Not earlier, so that at most two
  /// kernels run at once and all writes of earlier kernels are visible.
  SLM_DEVICE void wait_for_previous_kernel() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }

  static SLM_DEVICE void begin_kernel() {}
  static SLM_DEVICE void has_waited() {}

  SLM_DEVICE void barrier(Where = {}) const { __syncthreads(); }
  static SLM_DEVICE void barrier_of(int threads, int*, Where = {}) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  }
  SLM_DEVICE void wave_barrier(Where = {}) const { __syncwarp(); }

  SLM_DEVICE float wave_sum(float value, Where = {}) const {
    SLM_UNROLL
    for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
  }
  SLM_DEVICE float wave_max(float value, Where = {}) const {
    SLM_UNROLL
    for (int step = width / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
  }
  template <class T>
  SLM_DEVICE T shuffle(T value, int from, Where = {}) const {
    return __shfl_sync(0xffffffffu, value, from);
  }

  template <class Element>
  SLM_DEVICE FragmentC<Matrix> mma(const FragmentA<Matrix>& a, const FragmentB<Matrix>& b, const FragmentC<Matrix>& c,
                                   Where = {}) const {
    FragmentC<Matrix> d;
    float* const v = d.value;
    if constexpr (std::is_same_v<Element, bfloat16_t>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
          "{%10,%11,%12,%13};"
          : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
          : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
            "f"(c.value[0]), "f"(c.value[1]), "f"(c.value[2]), "f"(c.value[3]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
          "{%10,%11,%12,%13};"
          : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
          : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
            "f"(c.value[0]), "f"(c.value[1]), "f"(c.value[2]), "f"(c.value[3]));
    }
    return d;
  }

  SLM_DEVICE TilesA tiles_a(const std::uint32_t* tile, int row_words) const {
    return {address_of(tile + lane_index() % 16 * row_words + lane_index() / 16 * 4)};
  }
  SLM_DEVICE TilesTransposedA tiles_transposed_a(const std::uint32_t* tile, int row_words) const {
    const int k = lane_index() / 16 * 8 + lane_index() % 8;
    return {address_of(tile + k * row_words + lane_index() / 8 % 2 * 4)};
  }
  SLM_DEVICE TilesB tiles_b(const std::uint32_t* tile, int row_words) const {
    return {address_of(tile + lane_index() % 8 * row_words + lane_index() / 8 % 2 * 4)};
  }

  static SLM_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

  static SLM_DEVICE int atomic_add(int* address, int value) { return atomicAdd(address, value); }
  static SLM_DEVICE void fence() { __threadfence(); }
  static SLM_DEVICE void spin_until(const int* address, int value, Where = {}) {
    while (*static_cast<const volatile int*>(address) < value) {
    }
    fence();
  }
  template <class T>
  static SLM_DEVICE const T& constant(const T* address) {
    return *address;
  }

  /// Bypasses the first-level cache, where weights have no reuse. Not a constant load (.nc): ptxas would move it after
  /// the wait for the previous kernel, and keys are not constant.
  template <class T>
  static SLM_DEVICE T load_stream(const T* address) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    std::uint32_t word[sizeof(T) / 4];
    if constexpr (sizeof(T) == 16) {
      asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                   : "l"(address));
    } else if constexpr (sizeof(T) == 8) {
      asm volatile("ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(word[0]), "=r"(word[1]) : "l"(address));
    } else {
      asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word[0]) : "l"(address));
    }
    T value;
    __builtin_memcpy(&value, word, sizeof(T));
    return value;
  }

  static SLM_DEVICE std::uint32_t put_bits(std::uint32_t word, std::uint32_t mask, std::uint32_t base) {
    std::uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(base));
    return result;
  }
  template <class T>
  static SLM_DEVICE T keep(T value) {
    if constexpr (sizeof(T) == 8) {
      asm volatile("" : "+l"(value));
    } else {
      asm volatile("" : "+r"(value));
    }
    return value;
  }

  static SLM_DEVICE int forget(int value) { return keep(value); }

  template <class Element>
  static SLM_DEVICE std::uint32_t pack2(float low, float high) {
    std::uint32_t word;
    if constexpr (std::is_same_v<Element, bfloat16_t>) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
      // NaN passes the comparisons, as intended.
      low = low > 65504.0f ? 65504.0f : low < -65504.0f ? -65504.0f : low;
      high = high > 65504.0f ? 65504.0f : high < -65504.0f ? -65504.0f : high;
      word = pack2_within(low, high);
    }
    return word;
  }
  static SLM_DEVICE std::uint32_t pack2_within(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  template <int I, int J, int K, int M>
  static SLM_DEVICE std::uint32_t bytes(std::uint32_t low, std::uint32_t high) {
    return __byte_perm(low, high, I | J << 4 | K << 8 | M << 12);
  }
  template <class Element>
  static SLM_DEVICE float unpack_low(std::uint32_t word) {
    if constexpr (std::is_same_v<Element, bfloat16_t>) return __uint_as_float(word << 16);
    return half_to_float(static_cast<std::uint16_t>(word));
  }
  template <class Element>
  static SLM_DEVICE float unpack_high(std::uint32_t word) {
    if constexpr (std::is_same_v<Element, bfloat16_t>) return __uint_as_float(word & 0xffff0000u);
    return half_to_float(static_cast<std::uint16_t>(word >> 16));
  }

 private:
  unsigned thread_;

  /// Shared memory address. Opaque, otherwise the compiler recomputes it for every tile.
  static SLM_DEVICE std::uint32_t address_of(const std::uint32_t* word) {
    std::uint32_t address = static_cast<std::uint32_t>(__cvta_generic_to_shared(word));
    asm("mov.u32 %0, %0;" : "+r"(address));
    return address;
  }
  static SLM_DEVICE float half_to_float(std::uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }
};

}}}

#endif
