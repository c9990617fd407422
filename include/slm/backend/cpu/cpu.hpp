// backend::Cpu: SIMD kernels and a thread pool.
//
// A row's result has the same bits for any other rows, number of threads and division of a prompt. Threads divide the
// rows of a weight, never its columns. Each sum runs over k in one order for every blocking. Attention is divided at
// absolute positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/code_matrix.hpp"
#include "slm/backend/cpu/products.hpp"
#include "slm/backend/cpu/step.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/backend/dense_matrix.hpp"
#include "slm/backend/mixed_matrix.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

namespace cpu {
template <class Format>
struct MatrixOf {
  using type = MixedMatrix<CodeMatrix>;
};
template <DenseFormat Format>
struct MatrixOf<Format> {
  using type = DenseMatrix<Format>;
};
}  // namespace cpu

/// A handle: copies share the threads. Any number of models and host threads may use one handle; their steps are
/// serialized.
/// Public members: the operations of the concept Backend.
class Cpu : private cpu::Products {
 public:
  static constexpr const char* name = "cpu";
  static constexpr int max_rows = 512;
  static constexpr bool chooses = false;
  static constexpr bool own_memory = false;
  using Activation = float;
  static constexpr auto kv_formats = slm::kv_formats;
  using Recorded = NothingRecorded;
  template <class T>
  using Buffer = PageBuffer<T>;
  using Mixed = MixedMatrix<cpu::CodeMatrix>;
  template <class Format>
  using Matrix = typename cpu::MatrixOf<Format>::type;

  /// Throws backend.invalid-threads, backend.no-thread, backend.unsupported-instruction-set.
  Cpu(const CpuOptions& options = {}) : Products(options), copies_weights_(options.copy_weights) {}
  explicit Cpu(int threads) : Cpu(CpuOptions{.threads = checked(threads)}) {}

  /// The process-wide default device: created on first use, destroyed with its last handle. Throws like Cpu().
  static Cpu shared() {
    static std::mutex mutex;
    static std::weak_ptr<State> current;
    const std::lock_guard lock(mutex);
    if (std::shared_ptr<State> state = current.lock()) return Cpu(std::move(state));
    Cpu fresh;
    current = fresh.state_;
    return fresh;
  }

  using Products::arithmetic;
  using Products::isa;
  using Products::threads;

  /// From now on this handle copies floating-point weights, see CpuOptions::copy_weights.
  void copy_weights() { copies_weights_ = true; }

  /// Allocates KV cache memory. Throws backend.out-of-memory.
  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(count, PageSize::huge);
  }

  Buffer<float> upload(const float* host, std::size_t count) {
    Buffer<float> buffer(count);
    if (count > 0) std::memcpy(buffer.data(), host, count * sizeof(float));
    return buffer;
  }

  /// References tensors of the format's type unless weights are to be copied; converts others once. Quantized layers
  /// are packed for the kernels. Layers without a packing (odd groups, or stacked with floating-point layers) become
  /// fp32. With AwqInt4, floating-point layers are copied too.
  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    if constexpr (DenseFormat<Format>) {
      auto matrix = Matrix<Format>::stack(sources);
      if (copies_weights_) matrix.move_to(HugePages::take);
      return matrix;
    } else {
      if (!cpu::CodeMatrix::can_hold(sources)) {
        Mixed mixed = Mixed::dense(sources);
        if (std::is_same_v<Format, AnyFormat> && !copies_weights_) return mixed;
        mixed.visit([]<class Held>(Held& held) {
          if constexpr (!std::is_same_v<Held, cpu::CodeMatrix>) held.move_to(HugePages::take);
        });
        return mixed;
      }
      const auto lock = locked();
      return Mixed(cpu::CodeMatrix::stack(sources, *state_->pool));
    }
  }

  /// Starts a step; see Backend. Another thread's begin() waits until this step ends.
  CpuStep begin(const StepPlan& plan) { return CpuStep(*this, plan); }

  Adapter place(const Adapter& adapter) { return adapter; }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) { std::memcpy(host, from, bytes); }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) { std::memcpy(to, host, bytes); }

 private:
  explicit Cpu(std::shared_ptr<State> state) : Products(std::move(state)), copies_weights_(false) {}

  static int checked(int threads) {
    return threads == 0 ? -1 : threads;  // 0 means "all" in the options only
  }

  bool copies_weights_;
};

static_assert(Backend<Cpu> && RecurrentStep<CpuStep> && ShapesLayers<CpuStep> && AttendsLatents<Cpu> &&
              MixesStreams<Cpu>);

}}}
