// Products: shared parts of backend::Cpu's operations: threads, kernels, scratch memory, and products divided into
// tasks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/code_matrix.hpp"
#include "slm/backend/cpu/expert_scratch.hpp"
#include "slm/backend/cpu/kernels.hpp"
#include "slm/backend/cpu/options.hpp"
#include "slm/backend/cpu/rope_table.hpp"
#include "slm/backend/cpu/tasks.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/backend/dense_matrix.hpp"
#include "slm/backend/mixed_matrix.hpp"
#include "slm/core/error.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// Adjacent rows with one adapter, and its changes to the current product.
struct AdaptedRun {
  std::span<const LowRank> changes;
  std::int64_t first;
  int rows;
};

/// A handle; copies share the state.
class Products {
 public:
  /// Throws backend.no-thread, backend.invalid-threads, backend.unsupported-instruction-set.
  explicit Products(const CpuOptions& options) : state_(std::make_shared<State>(options)) {}
  Products(const Products&) = default;

  int threads() const noexcept { return state_->pool->threads(); }
  Isa isa() const noexcept { return state_->isa; }
  /// Equal for devices that compute the same bits.
  std::uint64_t arithmetic() const noexcept {
    const bool few_bits = state_->code_kernels == &cpu::code_kernels(dot_set(isa()), 1);
    return (static_cast<std::uint64_t>(isa()) * 4 + static_cast<std::uint64_t>(state_->terms)) * 2 + (few_bits ? 1 : 0);
  }

 protected:
  static constexpr int least_slice = 32;  // a task covers two slices of weight rows
  static constexpr int most_slice = 64;
  static_assert(2 * most_slice <= cpu::most_matmul_rows);
  // Approximate throughput of one thread; decides only whether to share work, never a result.
  static constexpr double multiplies_per_ns = 40;
  static constexpr double bytes_per_ns = 20;
  static constexpr double worth_sharing_ns = 3000;
  static constexpr double claim_ns = 6000;  // work per claim: a claim costs about 0.2 µs

  struct State {
    explicit State(const CpuOptions& options)
        : isa(resolve(options.isa)),
          kernels(&cpu::common_kernels(isa)),
          terms(has_bf16_products(isa) ? exact_terms - static_cast<int>(options.dense_activations) : exact_terms),
          code_kernels(&cpu::code_kernels(dot_set(isa), options.activations == Int4Activations::bits8 ? 1 : 2)),
          pool(pool_of(options)),
          scratch(static_cast<std::size_t>(pool->threads())) {}

    static std::shared_ptr<ThreadPool> pool_of(const CpuOptions& options) {
      if (options.executor != nullptr) return std::make_shared<ThreadPool>(options.threads, options.executor);
      return options.threads == 0 ? ThreadPool::common() : std::make_shared<ThreadPool>(options.threads);
    }

    void reserve_scratch(std::size_t count) {
      for (PageBuffer<float>& buffer : scratch) grow(buffer, count);
    }

    static void grow(PageBuffer<float>& buffer, std::size_t count) {
      if (buffer.size() < count) buffer = PageBuffer<float>(count);
    }

    std::mutex mutex;
    Isa isa;
    const cpu::CommonKernels* kernels;
    int terms;  // bfloat16 terms per activation for bfloat16 weights
    const cpu::CodeKernels* code_kernels;
    std::shared_ptr<ThreadPool> pool;
    RopeTable rope;
    AttendTasks attention;
    ExpertScratch experts;
    PageBuffer<float> step_scratch[scratch_buffers];  // activations of the current step
    PageBuffer<float> packed;
    PageBuffer<float> projected;
    std::vector<AdaptedRun> runs;
    PageBuffer<float> low_rank;              // per row, see AdaptedProducts
    std::vector<PageBuffer<float>> scratch;  // per thread
  };

  /// Scratch memory of one thread of a matmul.
  struct Thread {
    float* scratch;
    float* tile;  // [rows, 2 * most_slice]
  };

  /// Weight rows per slice. Large slices stream through memory and are reused from the cache for many activation rows;
  /// every thread should still get several tasks.
  int slice_rows(int out) const {
    return std::clamp(out / (8 * threads()) / least_slice * least_slice, least_slice, most_slice);
  }

  /// Tasks that together read one weight, with types erased.
  struct MatmulTasks {
    std::int64_t in;
    double elements, bytes;  // of the weight
    void (*begin)();         // see MatmulKernels
    void (*end)();
    const void* task;
    void (*call)(const void* task, int index, const Thread& thread);
  };

  void share_matmul(const MatmulTasks& tasks, int rows, int count) {
    const std::size_t kernel_scratch = cpu::matmul_scratch(tasks.in);
    state_->reserve_scratch(kernel_scratch + static_cast<std::size_t>(rows * 2 * most_slice));
    const double nanoseconds = std::max(tasks.bytes / bytes_per_ns, tasks.elements * rows / multiplies_per_ns);
    const bool alone = threads() == 1 || nanoseconds < worth_sharing_ns;
    const int fair = std::min(count / (4 * threads()), static_cast<int>(count * claim_ns / nanoseconds));
    const int grain = alone ? count : std::max(1, fair);
    run(ceil_div(count, grain), nanoseconds, [&](std::uint32_t index, int worker) {
      float* scratch = state_->scratch[static_cast<std::size_t>(worker)].data();
      const Thread thread{.scratch = scratch, .tile = scratch + kernel_scratch};
      const int first = static_cast<int>(index) * grain;
      if (tasks.begin != nullptr) tasks.begin();
      for (int i = first; i < std::min(first + grain, count); ++i) tasks.call(tasks.task, i, thread);
      if (tasks.end != nullptr) tasks.end();
    });
  }

  /// Throws backend.executor-waits.
  std::unique_lock<std::mutex> locked() const {
    if (state_->pool->is_waiting_here()) {
      throw Error("backend.executor-waits",
                  "expected no use of a device in a thread that waits for parts of a loop of this device, found one",
                  "Let a thread in Executor::run() take no job that uses a model, or give such jobs another device");
    }
    return std::unique_lock(state_->mutex);
  }

  template <class Task>
  void run(int count, double nanoseconds, const Task& task) {
    state_->pool->run(static_cast<std::uint32_t>(count), task, nanoseconds >= worth_sharing_ns);
  }

  template <class Format>
  const auto& kernels_for(const DenseMatrix<Format>&) const {
    return cpu::matmul_kernels<typename Format::Element>(state_->isa, state_->terms);
  }
  const auto& kernels_for(const cpu::CodeMatrix&) const { return *state_->code_kernels; }

  // Matrices with a run-time type dispatch at each kernel call, which takes long enough. The surrounding operations are
  // therefore compiled once.

  /// Packs norm(x), or x, for the weight's kernels, once per packing of the weight.
  template <class Weight>
  const float* pack_rows(const Weight& weight, View<const float, 2> x, const Norm* norm) {
    if constexpr (is_mixed<Weight>) {
      return weight.visit([&](const auto& held) { return pack_rows(held, x, norm); });
    } else {
      return pack_held(weight, x, norm);
    }
  }

  template <class Weight>
  const float* pack_held(const Weight& weight, View<const float, 2> x, const Norm* norm) {
    const int rows = static_cast<int>(x.extent(0));
    cpu::PackTask task;
    task.x = x.data;
    task.x_stride = x.stride(0);
    task.in = x.extent(1);
    if (norm != nullptr) task.norm = *norm;
    task.rows = rows;
    const auto& kernels = kernels_for(weight);
    const auto floats = static_cast<std::size_t>(kernels.packed_floats(rows, task.in));
    const auto pack = [&](const cpu::RowBlocks& blocks) {
      run(blocks.blocks, 8.0 * static_cast<double>(x.size()) / bytes_per_ns, [&](std::uint32_t block, int) {
        cpu::PackTask part = task;
        part.first_block = static_cast<int>(block);
        part.last_block = part.first_block + 1;
        kernels.pack(part);
      });
      task.packed += floats;
    };
    if constexpr (std::is_same_v<Weight, cpu::CodeMatrix>) {
      State::grow(state_->packed, floats * weight.packings.size());
      task.packed = state_->packed.data();
      for (const std::size_t segment : weight.packings) {
        task.weight = &weight.segments[segment].tiles;
        pack(kernels.blocks(rows, task.weight->bits));
      }
    } else {
      State::grow(state_->packed, floats);
      task.packed = state_->packed.data();
      pack(kernels.blocks(rows));
    }
    return state_->packed.data();
  }

  /// Runs `count` tasks that together read the whole weight.
  template <class Weight, class Task>
  void run_matmul(const Weight& weight, int rows, int count, const Task& task) {
    MatmulTasks tasks;
    tasks.in = weight.in;
    tasks.elements = static_cast<double>(weight.out) * static_cast<double>(weight.in);
    tasks.bytes = static_cast<double>(weight.bytes());
    if constexpr (is_mixed<Weight>) {
      weight.visit([&](const auto& held) { set_around(tasks, held); });
    } else {
      set_around(tasks, weight);
    }
    tasks.task = &task;
    tasks.call = [](const void* to, int index, const Thread& thread) {
      (*static_cast<const Task*>(to))(index, thread);
    };
    share_matmul(tasks, rows, count);
  }

  template <class Weight>
  void set_around(MatmulTasks& tasks, const Weight& weight) const {
    const auto& kernels = kernels_for(weight);
    tasks.begin = kernels.begin;
    tasks.end = kernels.end;
  }

  /// out[r, i] = packed row r . weight row first + i
  void multiply(const MixedMatrix<cpu::CodeMatrix>& weight, std::int64_t first, int count, const float* packed,
                int rows, float* out, std::int64_t out_stride, const Thread& thread) const {
    weight.visit([&](const auto& held) { multiply(held, first, count, packed, rows, out, out_stride, thread); });
  }

  template <class Format>
  void multiply(const DenseMatrix<Format>& weight, std::int64_t first, int count, const float* packed, int rows,
                float* out, std::int64_t out_stride, const Thread& thread) const {
    const auto matmul = kernels_for(weight).matmul;
    each_segment(weight, first, count, [&](const auto& segment, std::int64_t from, int some) {
      cpu::MatmulTask<typename Format::Element> task;
      task.weight = segment.data + from * weight.in;
      task.in = weight.in;
      task.count = some;
      task.packed = packed;
      task.rows = rows;
      task.out = out;
      task.out_stride = out_stride;
      task.scratch = thread.scratch;
      matmul(task);
      out += some;
    });
  }

  void multiply(const cpu::CodeMatrix& weight, std::int64_t first, int count, const float* packed, int rows, float* out,
                std::int64_t out_stride, const Thread& thread) const {
    const cpu::CodeKernels& kernels = *state_->code_kernels;
    const std::int64_t floats = kernels.packed_floats(rows, weight.in);
    each_segment(weight, first, count, [&](const auto& segment, std::int64_t from, int some) {
      kernels.matmul(cpu::CodeTask{.weight = &segment.tiles,
                                   .first = from,
                                   .count = some,
                                   .packed = packed + segment.packing * floats,
                                   .rows = rows,
                                   .out = out,
                                   .out_stride = out_stride,
                                   .scratch = thread.scratch});
      out += some;
    });
  }

  /// Calls use(segment, first, count) for each segment's part of weight rows first.. .
  template <class Weight, class Use>
  static void each_segment(const Weight& weight, std::int64_t first, int count, Use use) {
    for (const auto& segment : weight.segments) {
      if (first < segment.rows) {
        const int some = static_cast<int>(std::min<std::int64_t>(count, segment.rows - first));
        use(segment, first, some);
        count -= some;
        first += some;
        if (count == 0) return;
      }
      first -= segment.rows;
    }
  }

  explicit Products(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}}}
