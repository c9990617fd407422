// LanesRuntime: a GPU emulated on the CPU, for tests and for machines without a GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/gpu/lane/lane_host.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Calls execute immediately, so streams need no ordering; a stream under capture records.
/// Public members: the operations of the concept Runtime.
template <class Layout, class Sums = gpu::FloatSums>
class LanesRuntime {
 public:
  static constexpr const char* name = Layout::lanes == 64 ? "lanes64" : "lanes32";
  static constexpr bool emulated = true;

  class Graph {
    friend LanesRuntime;
    std::vector<std::function<void()>> steps_;
    int device_ = 0;
  };
  class Stream {
    friend LanesRuntime;
    int device_ = 0;
    bool capturing_ = false;
    Graph recorded_;
  };
  class Event {
    friend LanesRuntime;
    int device_ = 0;
    std::chrono::steady_clock::time_point at_{};
  };

  /// Two devices, one per thread order.
  static std::vector<gpu::DeviceInfo> devices() {
    std::vector<gpu::DeviceInfo> all;
    for (const char* order : {"forward", "backward"}) {
      all.push_back({.name = text("host lanes, ", order),
                     .architecture = Layout::name,
                     .driver = "none",
                     .wave_width = Layout::lanes,
                     .multiprocessors = 4,
                     .shared_bytes = gpu::max_shared_bytes,
                     .memory_bytes = std::size_t{1} << 40,
                     .cooperative = true});
    }
    return all;
  }

  explicit LanesRuntime(int device = 0) : state_(std::make_shared<State>()) {
    const auto all = devices();
    if (device < 0 || static_cast<std::size_t>(device) >= all.size()) {
      throw Error("gpu.no-device", text("device ", device, " of ", all.size(), " emulated ones"),
                  text("Choose 0 or 1: threads run forward or backward"));
    }
    state_->device = device;
    state_->info = all[static_cast<std::size_t>(device)];
    state_->emulator.order = device == 0 ? gpu::LaneOrder::forward : gpu::LaneOrder::backward;
  }

  const gpu::DeviceInfo& info() const { return state_->info; }
  std::size_t memory_free() const { return state_->info.memory_bytes; }

  /// Filled with 0xFF, so that reads of unwritten memory return NaN.
  void* allocate(std::size_t bytes) {
    const std::size_t whole = (bytes + 255) / 256 * 256;
    void* const memory = whole < bytes ? nullptr : ::operator new(whole, alignment, std::nothrow);
    if (memory == nullptr) {
      throw Error("gpu.out-of-memory", text("could not allocate ", bytes, " bytes"),
                  "Lower the context (LoadOptions::context, --context)");
    }
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  void release(void* memory) noexcept { ::operator delete(memory, alignment); }
  void* allocate_host(std::size_t bytes) { return allocate(bytes); }
  void release_host(void* memory) noexcept { ::operator delete(memory, alignment); }

  Stream make_stream() {
    Stream stream;
    stream.device_ = state_->device;
    return stream;
  }
  Event make_event() {
    Event event;
    event.device_ = state_->device;
    return event;
  }

  void copy_in(void* to, const void* from, std::size_t bytes, Stream& stream) { copy(to, from, bytes, stream); }
  void copy_out(void* to, const void* from, std::size_t bytes, Stream& stream) { copy(to, from, bytes, stream); }
  void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
    if (bytes > 0) run(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void fill(void* to, int byte, std::size_t bytes, Stream& stream) {
    if (bytes > 0) run(stream, [=] { std::memset(to, byte, bytes); });
  }
  void record(Event& event, Stream& stream) {
    check(event.device_ == stream.device_ ? stream.device_ : -1);
    event.at_ = std::chrono::steady_clock::now();
  }
  void wait(Event& event, Stream& stream) { check(event.device_ == stream.device_ ? stream.device_ : -1); }
  float milliseconds(Event& from, Event& to) {
    return std::chrono::duration<float, std::milli>(to.at_ - from.at_).count();
  }
  void synchronize(Stream& stream) { check(stream.device_); }
  void synchronize(Event& event) { check(event.device_); }
  bool idle(Stream& stream) {
    check(stream.device_);
    return true;
  }

  void begin_capture(Stream& stream) {
    check(stream.device_);
    if (stream.capturing_) throw Error("gpu.failed", "the stream already captures", "End the first capture");
    stream.capturing_ = true;
    stream.recorded_ = {};
  }
  Graph end_capture(Stream& stream) {
    if (!std::exchange(stream.capturing_, false)) {
      throw Error("gpu.failed", "the stream captures nothing", "Begin a capture first");
    }
    stream.recorded_.device_ = stream.device_;
    return std::move(stream.recorded_);
  }
  void replay(const Graph& graph, Stream& stream) {
    check(graph.device_ == stream.device_ ? stream.device_ : -1);
    for (const auto& step : graph.steps_) step();
  }

  template <class K>
  void launch(const typename K::Args& args, Stream& stream) {
    static_assert(gpu::Kernel<K>);
    ++state_->launches;
    run(stream, [state = state_.get(), args] {
      const std::lock_guard lock(state->mutex);
      state->emulator.template run<K, gpu::HostLane<Layout, Sums>>(args);
    });
  }

  template <class K>
  int resident_blocks() const {
    return state_->info.multiprocessors;
  }

  /// Number of kernels launched so far.
  long launches() const { return state_->launches; }

 private:
  static constexpr std::align_val_t alignment{256};

  struct State {
    int device = 0;
    gpu::DeviceInfo info;
    std::mutex mutex;  // one emulator, so one kernel at a time
    gpu::BlockEmulator emulator;
    long launches = 0;
  };

  template <class Step>
  void run(Stream& stream, Step step) {
    check(stream.device_);
    if (stream.capturing_) {
      stream.recorded_.steps_.push_back(std::move(step));
    } else {
      step();
    }
  }

  void check(int device) const {
    if (device == state_->device) return;
    throw Error("gpu.other-device", "a stream, event or graph of another device was given",
                "Make streams, events and graphs by the runtime that uses them");
  }

  std::shared_ptr<State> state_;
};

static_assert(gpu::Runtime<LanesRuntime<gpu::MmaSync16x8x16>>);

}}}
