// Lane: what one thread of a GPU sees. Kernels are written against this and nothing else.
//
//   Lane::width                    threads of a wave (warp, wavefront): a fact of the device, 32 or 64
//   Lane::Matrix                   layout of the matrix unit's fragments, see mma_layout.hpp
//   thread() threads()             index in the block, size of the block
//   wave() waves() lane_index()    wave in the block, waves of the block, index in the wave
//   block_x() block_y() block_z()
//   wait_for_previous_kernel()     until the kernels before this one in its stream have ended and what they wrote is
//                                  seen; from then on the next one may begin. See launch.hpp
//   begin_kernel() has_waited()    mark in a kernel that plays others where those begin, and have waited (the host's
//                                  lanes check it)
//   barrier()                      all threads of the block; shared and global writes before it are seen after it
//   barrier_of(threads, room)      the same of the first threads, whole waves. room: shared memory, zero at first
//   wave_barrier()                 the same of a wave
//   wave_sum(v) wave_max(v)        over all lanes of a wave, the result in each
//   shuffle(v, lane)               v of another lane of the wave
//   mma<Element>(a, b, c)          a . b + c on the matrix unit: fragments of Lane::Matrix, c in fp32
//   tiles_a(tile, row_words)       where a lane reads fragments of operand A in shared memory, see fragments.hpp;
//   tiles_transposed_a tiles_b     .load(distance) loads one. Tiles and their rows begin at multiples of 16 bytes
//   atomic_add(p, v)               the old value; device-wide
//   fence()                        writes before it are seen by the device before writes after it
//   spin_until(p, v)               a wave waits until another block has raised *p to v. What was written before the
//                                  fence() that came before that is then seen
//   constant(p)                    *p, which no kernel writes while this one runs; all lanes have the same p
//   forget_thread()                from here on the compiler does not know this thread's number from before
//   Copy{}                         16 bytes from device to shared memory: .begin(to, from), whose `to` nobody may use,
//                                  and .end(to); they are there after wait_for_copies() and a barrier
//   keep(v)                        v, an integer, which is held from here on and not found anew where it is used
//   forget(v)                      v, an integer that lanes have each their own of: what follows from it is found anew
//   load_stream(p)                 4, 8 or 16 bytes that are read once
//   pack2<Element>(low, high)      two floats rounded to two 16-bit elements of a word; half saturates
//   pack2_within(low, high)        two floats that a half can hold, or NaN, rounded to two of a word
//   bytes<i, j, k, l>(low, high)   a word of four of the eight bytes of two words
//   put_bits(word, mask, base)     the word's bits under the mask, and those of base
//   exp2(v) tanh ... see each
//
// Barriers, spins, sums, shuffles, mma and loads of fragments are collective: every thread of the block or of the wave
// takes part, in the same line of the program. A helper that holds one and is called from several places passes its
// caller's Where on.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/core/macros.hpp"

// What runs on the device knows no exceptions and needs no checks; the host's lanes have both.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define SLM_DEVICE_PASS 1
#else
#define SLM_DEVICE_PASS 0
#include <atomic>

#include "slm/core/error.hpp"
#endif

/// Before a loop that often has one turn, or whose turns have no registers side by side.
#if defined(__CUDACC__) || defined(__HIP__)
#define SLM_ROLLED _Pragma("unroll 1")
#else
#define SLM_ROLLED _Pragma("GCC unroll 1")
#endif

namespace slm { inline namespace v0_1 { namespace gpu {

/// A line of a kernel, by which collective operations are told apart.
struct Where {
  const char* file = nullptr;
  int line = 0;

  static SLM_DEVICE constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

#if !SLM_DEVICE_PASS
/// On the host's lanes: whether the thread that runs is in a kernel and has not waited for the previous one. Atomic,
/// since to ThreadSanitizer the threads of a block are threads.
inline constinit thread_local std::atomic<bool> before_wait{false};
#endif

/// Device memory with its length. On the host's lanes every access is checked. Constant: no kernel ever writes it, so
/// that a kernel may read it before wait_for_previous_kernel(), and nothing else.
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

  /// Memory that may be written is also memory that is only read.
  template <class U>
  requires(!std::is_same_v<U, T> && std::is_same_v<U, const T>) SLM_DEVICE operator Memory<U>() const {
    return {data, size};
  }

 private:
  SLM_DEVICE void check([[maybe_unused]] std::int64_t index, [[maybe_unused]] std::int64_t count) const {
#if !SLM_DEVICE_PASS
    if (!Constant && before_wait.load(std::memory_order_relaxed)) {
      throw Error("gpu.not-waited", "a kernel accesses what the one before it may still write or read",
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

/// Weights.
template <class T>
using ConstantMemory = Memory<const T, true>;

/// 8 and 16 bytes that move as one.
struct alignas(8) Word2 {
  std::uint32_t word[2];
};
struct alignas(16) Word4 {
  std::uint32_t word[4];
};

SLM_DEVICE std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
SLM_DEVICE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

}}}
