// A persistent kernel runs a list of other kernels in one launch. A program in device memory lists the kernels, their
// grids and arguments. The resident blocks divide the blocks of each operation. Between two operations they synchronise
// instead of launching.
//
// The kernels are the function objects that are also launched, over a Lane that emulates their block index. Its wait
// for the previous kernel waits until all blocks have finished the previous operation, so weight loads before that wait
// overlap here too. Each kernel runs with as many threads as in a launch; surplus threads of a block skip it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Threads per block: those of the widest kernel in the lists.
inline constexpr int persistent_threads = 256;

/// An operation of a program: one kernel with its grid.
struct Operation {
  int kernel;         // index in the list of kernels
  int x, y, blocks;   // grid; total number of blocks
  std::int64_t args;  // byte offset of its Args in the program
};

/// Arguments of every persistent kernel.
struct PersistentArgs {
  ConstantMemory<std::byte> program;  // begins with the operations
  int first, count;                   // range of operations
  int blocks;                         // blocks of the grid, all resident at once
  int* arrived;                       // count of finished (block, operation) pairs; zero between launches
};

/// Threads per block of a kernel in a list: as in a launch, or the minimum that it supports.
template <class K>
constexpr int threads_of(int wave_width) {
  if constexpr (requires { K::waves; }) {
    return K::waves * wave_width;
  } else if constexpr (requires { K::least_threads; }) {
    return K::least_threads;
  } else {
    return K::max_block;
  }
}

/// A lane that emulates a block of a kernel with `Threads` threads per block.
template <class Base, int Threads>
class PersistentLane : public Base {
 public:
  /// Earlier operations have finished when `arrived` reaches `awaited`; 0: they have finished. word: see barrier_of().
  SLM_DEVICE PersistentLane(Base base, int block, int x, int y, const int* arrived, int awaited, int* word)
      : Base(base),
        x_(static_cast<int>(static_cast<unsigned>(block) % static_cast<unsigned>(x))),
        y_(static_cast<int>(static_cast<unsigned>(block) / static_cast<unsigned>(x) % static_cast<unsigned>(y))),
        z_(static_cast<int>(static_cast<unsigned>(block) / static_cast<unsigned>(x) / static_cast<unsigned>(y))),
        arrived_(arrived),
        awaited_(awaited),
        word_(word) {
    Base::forget_thread();  // keeps the compiler from precomputing thread-dependent values for all kernels
  }

  SLM_DEVICE int threads() const { return Threads; }
  static constexpr int own_waves = Threads / Base::width;
  SLM_DEVICE int waves() const { return own_waves; }
  SLM_DEVICE int block_x() const { return x_; }
  SLM_DEVICE int block_y() const { return y_; }
  SLM_DEVICE int block_z() const { return z_; }

  SLM_DEVICE void barrier(Where where = Where::here()) const {
    if constexpr (Threads < persistent_threads) {
      Base::barrier_of(Threads, word_, where);
    } else {
      Base::barrier(where);
    }
  }

  SLM_DEVICE void wait_for_previous_kernel() const {
    if (awaited_ > 0) {
      if (Base::wave() == 0) Base::spin_until(arrived_, awaited_);
      barrier();
    }
    Base::has_waited();
  }

 private:
  int x_, y_, z_;
  const int* arrived_;
  int awaited_;
  int* word_;
};

/// Runs programs of these kernels.
template <class... Kernels>
struct Persistent {
  using Args = PersistentArgs;
  template <std::size_t Bytes>
  struct SharedMemory {
    alignas(16) std::byte of_kernel[Bytes];
    int word;
  };
  using Shared = SharedMemory<std::max({sizeof(typename Kernels::Shared)...})>;
  template <class L>
  struct OnLane {
    using Matrix = L;
  };
  template <class L>
  using SharedFor = SharedMemory<std::max({sizeof(typename SharedOf<Kernels, OnLane<L>>::type)...})>;
  static constexpr int max_block = persistent_threads, least_blocks = 1;
  static constexpr bool cooperative = true;
  static Grid grid(const Args& args, int) { return {.x = args.blocks, .threads = persistent_threads}; }

  /// Index in the list; -1: absent.
  template <class K>
  static constexpr int index_of() {
    int found = -1, index = 0;
    static_cast<void>(((std::is_same_v<K, Kernels> ? (found = index, true) : (++index, false)) || ...));
    return found;
  }

  template <class Lane, class OwnShared>
  SLM_DEVICE void operator()(Lane lane, const Args& args, OwnShared& shared) const {
    if (lane.thread() == 0) shared.word = 0;
    lane.barrier();
    for (int i = 0; i < args.count; ++i) {
      const std::int64_t at = (args.first + i) * static_cast<std::int64_t>(sizeof(Operation));
      const Operation operation = Lane::constant(args.program.template vector<const Operation>(at));
      lane.begin_kernel();
      perform(lane, operation, args, i * args.blocks, shared, std::index_sequence_for<Kernels...>{});
      if (lane.thread() == 0) {
        lane.fence();
        const int before = Lane::atomic_add(args.arrived, 1);
        if (before == args.count * args.blocks - 1)
          *args.arrived = 0;  // no block waits for the end of the last operation
      }
    }
  }

 private:
  template <class Lane, class OwnShared, std::size_t... Indices>
  static SLM_DEVICE void perform(Lane lane, const Operation& operation, const Args& args, int awaited,
                                 OwnShared& shared, std::index_sequence<Indices...>) {
    static_cast<void>(((operation.kernel == static_cast<int>(Indices) &&
                        (perform_as<Kernels>(lane, operation, args, awaited, shared), true)) ||
                       ...));
  }

  /// Runs this block's part of an operation. All threads leave together.
  template <class K, class Lane, class OwnShared>
  static SLM_DEVICE void perform_as(Lane lane, const Operation& operation, const Args& args, int awaited,
                                    OwnShared& shared) {
    static_assert(Kernel<K> && threads_of<K>(Lane::width) <= persistent_threads && alignof(typename K::Shared) <= 16);
    using Own = PersistentLane<Lane, threads_of<K>(Lane::width)>;
    for (int block = lane.block_x(); block < operation.blocks; block += args.blocks) {
      if (lane.wave() < Own::own_waves) {
        const auto& of_kernel = Lane::constant(args.program.template vector<const typename K::Args>(operation.args));
        run_thread<K>(Own(lane, block, operation.x, operation.y, args.arrived, awaited, &shared.word), of_kernel,
                      reinterpret_cast<typename SharedOf<K, Own>::type&>(shared.of_kernel));
      } else {
        lane.has_waited();
      }
      lane.barrier();  // shared memory is reused by the next block
      awaited = 0;
    }
    if (lane.block_x() >= operation.blocks) {
      using Idle = PersistentLane<Lane, persistent_threads>;
      Idle(lane, 0, 1, 1, args.arrived, awaited, nullptr).wait_for_previous_kernel();
    }
  }
};

}}}
