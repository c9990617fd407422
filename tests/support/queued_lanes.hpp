// Emulated lanes whose streams work only while a caller waits for them, with one thread per device: as ranks of one
// process with one GPU each, over a simulated NCCL.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/played_device.hpp"
#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_lanes.hpp"

namespace slm::testing {

/// Number of waits of a runtime for the other ranks without polling, which would not detect a failure.
inline std::atomic<int> blind_waits{0};
/// The device with this number fails when it is polled.
inline std::atomic<int> lost_device{-1};

/// A device has its number and its order of lanes: NCCL rejects ranks that share one. It does not report that it is
/// emulated, so steps may have as many rows as on a GPU.
template <class Layout>
class QueuedLanes {
  using Work = std::function<bool()>;  // returns whether it is complete, and is polled until it is
  using Queue = std::deque<Work>;

 public:
  using Base = backend::LanesRuntime<Layout>;
  static constexpr const char* name = Base::name;
  static auto devices() { return Base::devices(); }

  class Stream {
   public:
    Queue* handle() const { return queue_.get(); }

   private:
    friend QueuedLanes;
    std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
    std::unique_ptr<Queue> recorded_ = {};  // during capture
  };
  class Event {
    friend QueuedLanes;
    std::shared_ptr<bool> reached_ = {};
    Queue* queue_ = nullptr;
  };
  class Graph {
    friend QueuedLanes;
    std::shared_ptr<const Queue> work_;
  };

  explicit QueuedLanes(int number = 0) : base_(number % 2), number_(number) {}

  const gpu::DeviceInfo& info() const { return base_.info(); }
  std::size_t memory_free() const { return base_.memory_free(); }
  Device::Current current() const { return Device::Current(number_); }

  void* allocate(std::size_t bytes) { return base_.allocate(bytes); }
  /// Like cudaFree(), it runs after all earlier work.
  void release(void* memory) noexcept {
    for (const std::weak_ptr<Queue>& one : *queues_) {
      const std::shared_ptr<Queue> queue = one.lock();
      if (queue == nullptr || advance(*queue)) continue;
      return queue->push_back([base = base_, memory]() mutable {
        base.release(memory);
        return true;
      });
    }
    base_.release(memory);
  }
  void* allocate_host(std::size_t bytes) { return base_.allocate_host(bytes); }
  void release_host(void* memory) noexcept { base_.release_host(memory); }
  Stream make_stream() {
    Stream stream;
    queues_->push_back(stream.queue_);
    return stream;
  }
  Event make_event() { return {}; }

  void copy_in(void* to, const void* from, std::size_t bytes, Stream& stream) { copy(to, from, bytes, stream); }
  void copy_out(void* to, const void* from, std::size_t bytes, Stream& stream) { copy(to, from, bytes, stream); }
  void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
    later(stream, [=](Base& base, auto& at_once) { base.copy(to, from, bytes, at_once); });
  }
  void fill(void* to, int byte, std::size_t bytes, Stream& stream) {
    later(stream, [=](Base& base, auto& at_once) { base.fill(to, byte, bytes, at_once); });
  }
  template <class K>
  int resident_blocks() const {
    return base_.template resident_blocks<K>();
  }
  template <class K>
  void launch(const typename K::Args& args, Stream& stream) {
    later(stream, [=](Base& base, auto& at_once) { base.template launch<K>(args, at_once); });
  }

  void record(Event& event, Stream& stream) {
    event.reached_ = std::make_shared<bool>(false);
    event.queue_ = stream.handle();
    stream.handle()->push_back([reached = event.reached_] { return *reached = true; });
  }
  void wait(Event&, Stream&) {}
  float milliseconds(Event&, Event&) { return 0; }
  void synchronize(Stream& stream) {
    finish(*stream.handle(), [&] { return stream.handle()->empty(); });
  }
  void synchronize(Event& event) {
    if (event.reached_) finish(*event.queue_, [&] { return *event.reached_; });
  }
  bool idle(Stream& stream) {
    if (lost_device == number_) throw Error("gpu.failed", "the device is lost", "Get another");
    advance(*stream.handle());
    return stream.handle()->empty();
  }

  void begin_capture(Stream& stream) { stream.recorded_ = std::make_unique<Queue>(); }
  Graph end_capture(Stream& stream) {
    Graph graph;
    graph.work_ = std::move(stream.recorded_);
    return graph;
  }
  void replay(const Graph& graph, Stream& stream) {
    stream.handle()->insert(stream.handle()->end(), graph.work_->begin(), graph.work_->end());
  }

 private:
  template <class Step>
  void later(Stream& stream, Step step) {
    Queue& to = stream.recorded_ ? *stream.recorded_ : *stream.queue_;
    to.push_back([base = base_, step]() mutable {
      auto at_once = base.make_stream();
      step(base, at_once);
      return true;
    });
  }

  static bool advance(Queue& queue) {
    while (!queue.empty()) {
      if (!queue.front()()) return false;
      queue.pop_front();
    }
    return true;
  }
  template <class Done>
  static void finish(Queue& queue, Done done) {
    while (!done()) {
      if (queue.front()()) {
        queue.pop_front();
        continue;
      }
      ++blind_waits;
      throw Error("made.up", "the runtime was to wait for other ranks", "Let the communicator wait");
    }
  }

  Base base_;
  int number_;
  std::shared_ptr<std::vector<std::weak_ptr<Queue>>> queues_ = std::make_shared<std::vector<std::weak_ptr<Queue>>>();
};

using Queued32 = backend::Gpu<QueuedLanes<gpu::MmaSync16x8x16>>;
using Queued64 = backend::Gpu<QueuedLanes<gpu::Mfma16x16x16>>;

template <class B>
using NcclOf = ranks::Nccl<typename B::Runtime, ranks::Threads>;

static_assert(gpu::Runtime<Queued32::Runtime> && ranks::NcclRuntime<Queued32::Runtime>);

}  // namespace slm::testing
