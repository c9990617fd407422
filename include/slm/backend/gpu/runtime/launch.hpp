// A kernel is a function object over a Lane; this is how one is started.
//
//   struct Scale {                                             // x *= factor
//     struct Args { Memory<float> x; float factor; };
//     struct Shared {};
//     static constexpr int max_block = 256;                    // threads, at any wave width
//     static Grid grid(const Args& args, int wave_width);      // blocks, and threads of a block
//     template <class Lane> SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const;
//   };
//
// On NVIDIA's devices of compute capability 9.0 and newer a kernel may begin before the one before it in its stream has
// ended: a dependent launch. Its threads then have to wait before they touch anything that a kernel writes, and every
// one of them, also those that have nothing to do, as what comes after the kernel relies on it for all kernels before.
// Here all of them wait before they begin. A kernel that has something to do before, which is to read weights, waits by
// itself, once on every way through it, and says so:
//
//     static constexpr bool waits = true;                      // calls lane.wait_for_previous_kernel()
//
// A kernel whose blocks wait for each other says so, and is started only where all of them fit on the device at once:
//
//     static constexpr bool cooperative = true;                // no more blocks than resident_blocks() of the runtime
#pragma once

#include <concepts>
#include <type_traits>

#include "slm/core/macros.hpp"

#if defined(__CUDACC__)
#include "slm/backend/gpu/lane/lane_cuda.hpp"
#elif defined(__HIP__)
#include "slm/backend/gpu/lane/lane_hip.hpp"
#endif

namespace slm { inline namespace v0_1 { namespace gpu {

struct Grid {
  int x = 1, y = 1, z = 1;  // blocks; x up to 2^31 - 1, y and z up to 65535
  int threads = 1;          // of a block, a multiple of the wave width
};

/// Static shared memory that every supported device gives a block.
inline constexpr int max_shared_bytes = 48 * 1024;

template <class K>
concept Kernel = std::is_empty_v<K> && std::is_trivially_copyable_v<typename K::Args> &&
                     std::is_trivially_default_constructible_v<typename K::Shared> &&
                     sizeof(typename K::Shared) <= max_shared_bytes
                 && sizeof(typename K::Args) <= 3072 && K::max_block <= 1024 &&
                 requires(const typename K::Args& args, int wave_width) {
  { K::grid(args, wave_width) } -> std::same_as<Grid>;
};

template <class K>
inline constexpr bool waits_by_itself = requires {
  requires K::waits;
};

/// When a kernel begins: with the end of the one before it, when that allows it, or with all of its own blocks at once.
enum class Start { in_turn, dependent, together };

template <class K>
inline constexpr bool is_cooperative = requires {
  requires K::cooperative;
};

/// What the threads of a block share: the same for all lanes, or less for those whose device has less.
template <class K, class Lane>
struct SharedOf {
  using type = typename K::Shared;
};
template <class K, class Lane>
requires requires { typename K::template SharedFor<typename Lane::Matrix>; }
struct SharedOf<K, Lane> {
  using type = typename K::template SharedFor<typename Lane::Matrix>;
  static_assert(sizeof(type) <= sizeof(typename K::Shared));
};

/// What a thread of a kernel does, on a device and emulated.
template <class K, class Lane>
SLM_DEVICE void run_thread(Lane lane, const typename K::Args& args, typename SharedOf<K, Lane>::type& shared) {
  if constexpr (!waits_by_itself<K>) lane.wait_for_previous_kernel();
  K{}(lane, args, shared);
}

#if defined(__CUDACC__) || defined(__HIP__)
/// How many blocks a multiprocessor must have room for. Where a kernel does not say, 0, ptxas may spill registers of
/// one to make room for a second.
template <class K>
inline constexpr int least_blocks = 0;
template <class K>
requires requires { K::least_blocks; }
inline constexpr int least_blocks<K> = K::least_blocks;

/// The one entry. It is a template of the kernel alone: a parameter that differs between the host's and the device's
/// pass would change its name.
template <class K>
__global__ __launch_bounds__(K::max_block, least_blocks<K>) void entry(const typename K::Args args) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  static_assert(Kernel<K>);
  __shared__ typename SharedOf<K, DeviceLane>::type shared;
  run_thread<K>(DeviceLane{}, args, shared);
#else
  static_cast<void>(args);
#endif
}
#endif

}}}
