// Emulated lanes that delay all work, as a busy device does.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_lanes.hpp"

namespace slm::testing {

/// Work runs only when a caller waits for it, which detects too early uses of host memory.
class LazyLanes : public backend::LanesRuntime<gpu::MmaSync16x8x16> {
  using Base = backend::LanesRuntime<gpu::MmaSync16x8x16>;

 public:
  class Event {
    friend LazyLanes;
    explicit Event(Base::Event base) : base_(std::move(base)) {}
    Base::Event base_;
    long behind_ = 0;  // amount of work
  };

  explicit LazyLanes(int device = 0) : Base(device) {}

  /// Number of waits for events whose work was not complete.
  long waits() const { return work_->waits; }

  Event make_event() { return Event(Base::make_event()); }

  void copy_in(void* to, const void* from, std::size_t bytes, Stream& stream) {
    later([=, this, &stream] { Base::copy_in(to, from, bytes, stream); });
  }
  void copy_out(void* to, const void* from, std::size_t bytes, Stream& stream) {
    later([=, this, &stream] { Base::copy_out(to, from, bytes, stream); });
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
    later([=, this, &stream] { Base::copy(to, from, bytes, stream); });
  }
  void fill(void* to, int byte, std::size_t bytes, Stream& stream) {
    later([=, this, &stream] { Base::fill(to, byte, bytes, stream); });
  }
  template <class K>
  void launch(const typename K::Args& args, Stream& stream) {
    later([=, this, &stream] { Base::launch<K>(args, stream); });
  }
  void replay(const Graph& graph, Stream& stream) {
    later([this, &graph, &stream] { Base::replay(graph, stream); });
  }

  void record(Event& event, Stream&) { event.behind_ = work_->added; }
  void wait(Event&, Stream&) {}
  float milliseconds(Event& first, Event& last) {
    finish(work_->added);
    return Base::milliseconds(first.base_, last.base_);
  }
  void synchronize(Stream&) { finish(work_->added); }
  void synchronize(Event& event) {
    work_->waits += work_->done < event.behind_;
    finish(event.behind_);
  }
  void release(void* memory) noexcept {
    finish(work_->added);
    Base::release(memory);
  }
  void release_host(void* memory) noexcept {
    finish(work_->added);
    Base::release_host(memory);
  }
  void begin_capture(Stream& stream) {
    Base::begin_capture(stream);
    work_->capturing = true;
  }
  Graph end_capture(Stream& stream) {
    work_->capturing = false;
    return Base::end_capture(stream);
  }

 private:
  struct Work {
    std::deque<std::function<void()>> waiting;
    long added = 0, done = 0, waits = 0;
    bool capturing = false;
  };

  template <class Step>
  void later(Step step) {
    if (work_->capturing) return step();
    work_->waiting.push_back(std::move(step));
    ++work_->added;
  }
  void finish(long behind) {
    for (; work_->done < behind; ++work_->done) {
      work_->waiting.front()();
      work_->waiting.pop_front();
    }
  }

  std::shared_ptr<Work> work_ = std::make_shared<Work>();
};

static_assert(gpu::Runtime<LazyLanes>);

}  // namespace slm::testing
