// A kernel is a function object over a Lane; this header launches kernels.
//
//  struct Scale {                                             // x *= factor
//    struct Args { Memory<float> x; float factor; };
//    struct Shared {};
//    static constexpr int max_block = 256;                    // threads, at any wave width
//    static Grid grid(const Args& args, int wave_width);      // blocks, and threads per block
//    template <class Lane> SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const;
//  };
//
// On NVIDIA devices of compute capability 9.0 and newer, a kernel may start before the previous kernel in its stream
// has
// ended (a dependent launch). Every thread, including idle ones, must then wait before it accesses memory that kernels
// write, since later kernels rely on this for all earlier ones. By default all threads wait first. A kernel that loads
// weights before the wait calls it itself, exactly once on each path, and declares:
//
//    static constexpr bool waits = true;                      // calls lane.wait_for_previous_kernel()
//
// A kernel whose blocks synchronise with each other declares this, and is launched only if all blocks are resident:
//
//    static constexpr bool cooperative = true;                // at most resident_blocks() of the runtime
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
  int threads = 1;          // threads per block, a multiple of the wave width
};

/// Static shared memory per block that every supported device has.
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

/// When a kernel starts: after the previous one has ended, earlier if the previous kernel allows it (dependent), or
/// with all blocks resident (together).
enum class Start { in_turn, dependent, together };

template <class K>
inline constexpr bool is_cooperative = requires {
  requires K::cooperative;
};

/// Shared memory of a block; smaller for lanes of devices with less.
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

/// Runs one thread of a kernel, on a device and in emulation.
template <class K, class Lane>
SLM_DEVICE void run_thread(Lane lane, const typename K::Args& args, typename SharedOf<K, Lane>::type& shared) {
  if constexpr (!waits_by_itself<K>) lane.wait_for_previous_kernel();
  K{}(lane, args, shared);
}

#if defined(__CUDACC__) || defined(__HIP__)
/// Minimum number of blocks per multiprocessor. If a kernel states none (0), ptxas may spill registers to fit a second
/// block.
template <class K>
inline constexpr int least_blocks = 0;
template <class K>
requires requires { K::least_blocks; }
inline constexpr int least_blocks<K> = K::least_blocks;

/// The only __global__ function. It is a template over the kernel only: a parameter that differs between host and
/// device compilation would change its name.
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
