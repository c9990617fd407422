// backend::Gpu: a GPU and its memory. The runtime hides the vendor, or the emulation on the CPU.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/host_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/device_shares.hpp"
#include "slm/backend/gpu/steps/device_state.hpp"
#include "slm/backend/gpu/steps/gpu_step.hpp"
#include "slm/backend/gpu/steps/step_graphs.hpp"
#include "slm/backend/gpu/weights/device_adapter.hpp"
#include "slm/backend/gpu/weights/expert_table.hpp"
#include "slm/backend/gpu/weights/tile_matrix.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/core/checksum.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// A handle: copies share the device, its stream and scratch memory. Steps of all models on one handle run in order.
/// Activations are fp32 in memory and fp16 or bf16 in the matrix unit. Keys and values of any format are fp16 there, so
/// an f32 cache would gain nothing.
/// Public members: the operations of the concept Backend.
template <gpu::Runtime R>
class Gpu {
 public:
  static constexpr const char* name = R::name;
  static constexpr bool emulated = requires { R::emulated; };
  static constexpr int max_rows = emulated ? 48 : 512;

 private:
  using State = gpu::DeviceState<R, max_rows, emulated ? 32 : 64>;

 public:
  static constexpr bool chooses = true;
  static constexpr bool own_memory = true;
  static constexpr int max_chained_rows = State::most_recorded_rows;
  using Runtime = R;
  using Activation = float;
  static constexpr std::array kv_formats = {KvFormat::f16, KvFormat::bf16, KvFormat::int8};
  template <class T>
  using Buffer = gpu::DeviceBuffer<T, R>;
  template <class Format>
  using Matrix = gpu::TileMatrix<Format, R>;
  using Recorded = gpu::StepGraphs<R>;

  Gpu(GpuOptions options = {}) : Gpu(runtime_of(options), options) {}
  explicit Gpu(int device) : Gpu(GpuOptions{.device = device}) {}
  explicit Gpu(R runtime, GpuOptions options = {}) : state_(std::make_shared<State>(std::move(runtime), options)) {}

  R& runtime() const { return state_->runtime; }
  const gpu::DeviceInfo& info() const { return state_->runtime.info(); }

  /// Throws gpu.out-of-memory. In emulation the memory is filled with NaN instead of zero, to detect reads of unwritten
  /// data.
  template <class T>
  Buffer<T> allocate(std::size_t count) {
    const std::lock_guard lock(state_->mutex);
    Buffer<T> buffer(state_->runtime, count);
    constexpr int byte = emulated && std::is_same_v<T, std::byte> ? 0xff : 0;
    if (count > 0) state_->runtime.fill(buffer.data(), byte, count * sizeof(T), state_->stream);
    return buffer;
  }

  Buffer<float> upload(const float* host, std::size_t count) {
    const std::lock_guard lock(state_->mutex);
    Buffer<float> buffer(state_->runtime, count);
    if (count > 0) copy_in(buffer.data(), host, count * sizeof(float));
    return buffer;
  }

  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    const std::lock_guard lock(state_->mutex);
    return Matrix<Format>(state_->runtime, state_->stream, sources);
  }

  /// Pinned host memory, from which the device copies directly.
  std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) {
    const auto buffer = std::make_shared<gpu::HostBuffer<R>>(state_->runtime, bytes);
    return {buffer, buffer->data()};
  }

  /// Copies an adapter to the device concurrently with steps. Throws adapter.rank, gpu.out-of-memory.
  Adapter place(const Adapter& adapter) { return gpu::place_adapter(state_->runtime, adapter); }

  /// The experts of a layer, where kernels find them.
  template <class Format>
  gpu::ExpertTable<R> tabulate(std::span<const Expert<Matrix<Format>>> experts) {
    const std::lock_guard lock(state_->mutex);
    return {state_->runtime, state_->stream, experts};
  }

  /// Reserves memory for recorded steps of a model, so that none of them allocates. product: width of the widest
  /// product.
  void reserve(Heads heads, std::int64_t product, int vocab, int context, const MixtureWidths& mixture = {}) {
    const std::lock_guard lock(state_->mutex);
    state_->reserve(heads, product, vocab, context, mixture);
  }
  static std::size_t reserved_bytes(Heads heads, std::int64_t product, int vocab, int context,
                                    const MixtureWidths& mixture = {}) {
    return State::reserved(heads, product, vocab, context, mixture).bytes();
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::lock_guard lock(state_->mutex);
    state_->runtime.copy(to, from, bytes, state_->stream);
  }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) {
    const std::lock_guard lock(state_->mutex);
    state_->landing.read(state_->stream, host, from, bytes);
  }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) {
    const std::lock_guard lock(state_->mutex);
    copy_in(to, host, bytes);
  }

  /// Starts a step; see Backend. Another thread's begin() waits until this step ends.
  gpu::GpuStep<State> begin(const StepPlan& plan) { return {state_, plan}; }

  /// For steps distributed over ranks.
  template <gpu::StreamCommunicator<typename R::Stream> C>
  gpu::DeviceShares<State, C> shares(const C& peers) {
    return {state_, peers};
  }

  /// Equal for devices whose results have the same bits, that is, of one architecture.
  std::uint64_t arithmetic() const {
    Checksum sum;
    sum.add(std::as_bytes(std::span(info().architecture)));
    return sum.value();
  }

  /// Waits for all submitted work.
  void synchronize() { state_->runtime.synchronize(state_->stream); }

 private:
  static R runtime_of(const GpuOptions& options) {
    if constexpr (std::constructible_from<R, int, bool>) {
      return R(options.device, options.dependent_launches);
    } else {
      return R(options.device);
    }
  }

  void copy_in(void* to, const void* from, std::size_t bytes) {
    state_->runtime.copy_in(to, from, bytes, state_->stream);
    state_->runtime.synchronize(state_->stream);  // the caller may free `from` afterwards
  }

  std::shared_ptr<State> state_;
};

}}}
