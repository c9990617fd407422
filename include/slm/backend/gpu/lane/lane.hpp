// Lane: the interface of one GPU thread. Kernels use only this interface.
//
//  Lane::width                    threads per wave (warp, wavefront): 32 or 64, a property of the device
//  Lane::Matrix                   layout of the matrix unit's fragments, see mma_layout.hpp
//  thread() threads()             index in the block, size of the block
//  wave() waves() lane_index()    wave in the block, waves per block, index in the wave
//  block_x() block_y() block_z()
//  wait_for_previous_kernel()     waits until earlier kernels in the stream have ended and their writes are visible;
//                                 the next kernel may start from then on. See launch.hpp
//  begin_kernel() has_waited()    mark where an emulated kernel begins and has waited (the host's lanes check it)
//  barrier()                      all threads of the block; earlier shared and global writes are visible after it
//  barrier_of(threads, word)      the same for the first threads, whole waves. word: shared memory, initially zero
//  wave_barrier()                 the same for a wave
//  wave_sum(v) wave_max(v)        over all lanes of a wave, the result in each
//  shuffle(v, lane)               v of another lane of the wave
//  mma<Element>(a, b, c)          a . b + c on the matrix unit: fragments of Lane::Matrix, c in fp32
//  tiles_a(tile, row_words)       location of a lane's fragments of operand A in shared memory, see fragments.hpp;
//  tiles_transposed_a tiles_b     .load(distance) loads one. Tiles and their rows are aligned to 16 bytes
//  atomic_add(p, v)               returns the old value; device-wide
//  fence()                        orders earlier writes before later ones, device-wide
//  spin_until(p, v)               a wave waits until another block has raised *p to v. Writes before that block's
//                                 preceding fence() are then visible
//  constant(p)                    *p, which no kernel writes while this one runs; all lanes have the same p
//  forget_thread()                keeps the compiler from reusing earlier values of the thread index
//  Copy{}                         16 bytes from device to shared memory: .begin(to, from) makes `to` inaccessible until
//                                 .end(to); the data is visible after wait_for_copies() and a barrier
//  keep(v)                        the integer v, held in a register instead of being recomputed
//  forget(v)                      the lane-dependent integer v; values derived from it are recomputed
//  load_stream(p)                 4, 8 or 16 bytes that are read once
//  pack2<Element>(low, high)      two floats rounded to two 16-bit elements of a word; half saturates
//  pack2_within(low, high)        the same for floats in the range of a half, or NaN
//  bytes<i, j, k, l>(low, high)   a word of four of the eight bytes of two words
//  put_bits(word, mask, base)     the word's bits under the mask, and those of base
//  exp2(v) tanh ... see each
//
// Barriers, spins, sums, shuffles, mma and loads of fragments are collective: every thread of the block or wave must
// reach them in the same source line. A helper with collectives that is called from several places passes its caller's
// Where on.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/core/macros.hpp"

// Device code has no exceptions and no checks; the host's lanes have both.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define SLM_DEVICE_PASS 1
#else
#define SLM_DEVICE_PASS 0
#include <atomic>

#include "slm/core/error.hpp"
#endif

/// Precedes a loop that often has one iteration, or whose iterations would need too many registers if unrolled.
#if defined(__CUDACC__) || defined(__HIP__)
#define SLM_ROLLED _Pragma("unroll 1")
#else
#define SLM_ROLLED _Pragma("GCC unroll 1")
#endif

namespace slm { inline namespace v0_1 { namespace gpu {

/// A source line of a kernel; identifies collective operations.
struct Where {
  const char* file = nullptr;
  int line = 0;

  static SLM_DEVICE constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

#if !SLM_DEVICE_PASS
/// Host lanes only: whether the running thread is in a kernel and has not waited for the previous one. Atomic, since
/// ThreadSanitizer treats the fibers of a block as threads.
inline constinit thread_local std::atomic<bool> before_wait{false};
#endif

/// Device memory with its length; host lanes check every access. Constant: no kernel writes it. Only such memory may be
/// read before wait_for_previous_kernel().
template <class T, bool Constant = false>
struct Memory {
  static_assert(!Constant || std::is_const_v<T>);
  T* data = nullptr;
  std::int64_t size = 0;  // elements

  SLM_DEVICE T& operator[](std::int64_t index) const {
    check(index, 1);
    return data[index];
  }

  /// A vector of elements from `index` on.
  template <class Vector>
  SLM_DEVICE Vector* vector(std::int64_t index) const {
    check(index, static_cast<std::int64_t>(sizeof(Vector) / sizeof(T)));
#if !SLM_DEVICE_PASS
    if (reinterpret_cast<std::uintptr_t>(data + index) % alignof(Vector) != 0) {
      throw Error("gpu.misaligned", text("a vector of ", sizeof(Vector), " bytes at element ", index, " is misaligned"),
                  "Report it: a kernel is wrong");
    }
#endif
    return reinterpret_cast<Vector*>(data + index);
  }

  /// `count` elements from `first` on.
  SLM_DEVICE Memory part(std::int64_t first, std::int64_t count) const {
    check(first, count);
    return {data + first, count};
  }

  SLM_DEVICE explicit operator bool() const { return data != nullptr; }

  /// Converts writable memory to read-only memory.
  template <class U>
  requires(!std::is_same_v<U, T> && std::is_same_v<U, const T>) SLM_DEVICE operator Memory<U>() const {
    return {data, size};
  }

 private:
  SLM_DEVICE void check([[maybe_unused]] std::int64_t index, [[maybe_unused]] std::int64_t count) const {
#if !SLM_DEVICE_PASS
    if (!Constant && before_wait.load(std::memory_order_relaxed)) {
      throw Error("gpu.not-waited", "a kernel accesses memory that the previous kernel may still use",
                  "Report it: a kernel is wrong");
    }
    if (index < 0 || index > size - count) {
      throw Error("gpu.out-of-bounds",
                  text("a kernel accesses elements ", index, "..", index + count - 1, " of a buffer of ", size),
                  "Report it: a kernel is wrong");
    }
#endif
  }
};

/// Memory that no kernel writes, such as weights.
template <class T>
using ConstantMemory = Memory<const T, true>;

/// 8 and 16 bytes for vector loads and stores of memory of any type.
struct [[gnu::may_alias]] alignas(8) Word2 {
  std::uint32_t word[2];
};
struct [[gnu::may_alias]] alignas(16) Word4 {
  std::uint32_t word[4];
};

SLM_DEVICE std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
SLM_DEVICE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

}}}
