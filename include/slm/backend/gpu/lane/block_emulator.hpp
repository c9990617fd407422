// BlockEmulator: runs the blocks of a kernel on the CPU, their threads as fibers. See lane_host.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/gpu/lane/fiber.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// The order in which runnable threads run.
enum class LaneOrder { forward, backward };

/// Runs the blocks of one launch one after another, or together if they synchronise: each block then runs as far as it
/// can before the next.
class BlockEmulator {
 public:
  struct Slot {  // state of a waiting thread
    enum class State { ready, wave, spin, block, done } state = State::ready;
    Where where = {};
    const void* in = nullptr;
    void* out = nullptr;
    void (*combine)(Slot* wave, int width) = nullptr;
    int number = 0;  // barrier: number of participating threads; spin: the awaited value
  };

  LaneOrder order = LaneOrder::forward;

  template <class K, class Lane>
  void run(const typename K::Args& args) {
    const Grid grid = K::grid(args, Lane::width);
    if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535 || grid.threads < 1 ||
        grid.threads > K::max_block || grid.threads % Lane::width != 0) {
      throw Error("gpu.launch",
                  text("a grid of ", grid.x, " x ", grid.y, " x ", grid.z, " blocks of ", grid.threads,
                       " threads, expected at most ", K::max_block, " threads in whole waves of ", Lane::width),
                  "Report it: a kernel is wrong");
    }
    threads_ = grid.threads;
    width_ = Lane::width;
    const std::int64_t blocks = std::int64_t{grid.x} * grid.y * grid.z;
    const int at_once = is_cooperative<K> ? static_cast<int>(blocks) : 1;
    const auto fibers = static_cast<std::size_t>(at_once * threads_);
    using Shared = typename SharedOf<K, Lane>::type;
    std::vector<Shared> shared(static_cast<std::size_t>(at_once));
    struct Context {
      BlockEmulator* self;
      const typename K::Args* args;
      Shared* shared;
    } context{this, &args, shared.data()};
    const auto body = [](void* opaque, int fiber) {
      const auto& c = *static_cast<Context*>(opaque);
      try {
        run_thread<K>(Lane{c.self, fiber}, *c.args, c.shared[fiber / c.self->threads_]);
        require_waited();
      } catch (...) {
        c.self->failure_ = std::current_exception();
      }
      const RaceCheck::Ignored ignored;
      c.self->slots_[static_cast<std::size_t>(fiber)].state = Slot::State::done;
    };
    for (std::int64_t first = 0; first < blocks; first += at_once) {
      places_.clear();
      for (std::int64_t i = first; i < first + at_once; ++i) {
        const std::int64_t block = order == LaneOrder::forward ? i : blocks - 1 - i;
        places_.push_back({static_cast<int>(block % grid.x), static_cast<int>(block / grid.x % grid.y),
                           static_cast<int>(block / grid.x / grid.y)});
      }
      std::memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof(Shared));
      slots_.assign(fibers, Slot{});
      before_wait_.assign(fibers, true);
      fibers_.start(static_cast<int>(fibers), body, &context);
      {
        const RaceCheck::Ignored ignored;
        run_blocks();
      }
      fibers_.joined();
    }
  }

  int threads() const { return threads_; }
  int block(int fiber, int axis) const { return places_[static_cast<std::size_t>(fiber / threads_)].at[axis]; }
  /// An address that represents the ordering of fences.
  void* fences() { return &fences_; }

  /// Called when a thread ends or begins another kernel.
  static void require_waited() {
    if (!before_wait.load(std::memory_order_relaxed)) return;
    throw Error("gpu.not-waited", "expected a wait for the previous kernel, but a thread ended without it",
                "Report it: a kernel is wrong");
  }

  /// Called by a thread: waits for the other threads of its wave or block, or for a spin's value.
  void wait(int fiber, Slot::State state, Where where, const void* in = nullptr, void* out = nullptr,
            void (*combine)(Slot*, int) = nullptr, int number = 0) {
    // A barrier orders memory for its block or wave. Other collectives exchange registers and order nothing.
    Slot* const meeting = combine != nullptr || state == Slot::State::spin ? nullptr
                          : state == Slot::State::block ? &slots_[static_cast<std::size_t>(fiber / threads_ * threads_)]
                                                        : first_of(fiber / width_);
    if (meeting != nullptr) RaceCheck::release(meeting_of(meeting, state));
    {
      const RaceCheck::Ignored ignored;
      slots_[static_cast<std::size_t>(fiber)] = {state, where, in, out, combine, number};
      fibers_.yield();
    }
    if (meeting != nullptr) RaceCheck::acquire(meeting_of(meeting, state));
  }

 private:
  using State = Slot::State;
  struct Place {
    int at[3];
  };

  void run_blocks() {
    const int count = static_cast<int>(places_.size());
    std::vector<bool> ended(places_.size());
    for (int left = count; left > 0;) {
      advanced_ = false;
      for (current_ = 0; current_ < count; ++current_) {
        const auto own = static_cast<std::size_t>(current_);
        if (!ended[own] && (ended[own] = run_block())) --left;
      }
      if (!advanced_) {
        throw Error("gpu.diverged", text(left, " blocks wait for each other forever"), "Report it: a kernel is wrong");
      }
    }
  }

  /// Runs the current block until it ends (true) or waits for another block.
  bool run_block() {
    const int waves = threads_ / width_, first = current_ * waves;
    while (true) {
      for (int i = 0; i < waves; ++i) run_wave(first + (order == LaneOrder::forward ? i : waves - 1 - i));
      int done = 0;
      for (int wave = first; wave < first + waves; ++wave) {
        if (first_of(wave)->state == State::spin) return false;
        done += first_of(wave)->state == State::done;
      }
      if (done == waves) return true;
      const Slot* const one = first_of(first);
      const int part = one->state == State::block ? one->number / width_ : waves;
      for (int wave = first; wave < first + part; ++wave) {
        const Slot* const other = first_of(wave);
        if (other->state != one->state || !same(other->where, one->where)) {
          diverged(*one, 0, *other, (wave - first) * width_);
        }
      }
      for (int i = 0; i < part * width_; ++i) first_of(first)[i].state = State::ready;
    }
  }

  /// Runs a wave until all its threads have reached a block barrier, wait for another block, or are done.
  void run_wave(int wave) {
    Slot* const slots = first_of(wave);
    const auto thread_of = [&](int lane) { return wave * width_ % threads_ + lane; };
    while (slots[0].state != State::block && slots[0].state != State::done) {
      if (slots[0].state == State::spin) {
        if (*static_cast<const int*>(slots[0].in) < slots[0].number) return;
        for (int i = 0; i < width_; ++i) slots[i].state = State::ready;
      }
      advanced_ = true;
      for (int i = 0; i < width_; ++i) {
        const int lane = order == LaneOrder::forward ? i : width_ - 1 - i, fiber = wave * width_ + lane;
        const auto own = static_cast<std::size_t>(fiber);
        before_wait.store(before_wait_[own], std::memory_order_relaxed);
        fibers_.resume(fiber);
        before_wait_[own] = before_wait.load(std::memory_order_relaxed);  // exchange() is a slow, locked instruction
        before_wait.store(false, std::memory_order_relaxed);
        if (failure_) fail(thread_of(lane));
      }
      for (int i = 1; i < width_; ++i) {
        if (slots[i].state != slots[0].state || slots[i].combine != slots[0].combine ||
            !same(slots[i].where, slots[0].where)) {
          diverged(slots[0], thread_of(0), slots[i], thread_of(i));
        }
      }
      if (slots[0].state == State::wave) {
        try {
          if (slots[0].combine != nullptr) slots[0].combine(slots, width_);
        } catch (const Error&) {
          failure_ = std::current_exception();
          fail(thread_of(0));
        }
        for (int i = 0; i < width_; ++i) slots[i].state = State::ready;
      }
    }
  }

  /// An address that represents a barrier of the block or of a wave.
  static void* meeting_of(Slot* slot, State state) {
    return state == State::block ? static_cast<void*>(&slot->out) : static_cast<void*>(&slot->in);
  }

  Slot* first_of(int wave) { return &slots_[static_cast<std::size_t>(wave * width_)]; }

  static bool same(const Where& a, const Where& b) {
    return a.line == b.line && (a.file == b.file || (a.file && b.file && std::strcmp(a.file, b.file) == 0));
  }

  static std::string describe(const Slot& slot) {
    if (slot.state == State::done) return "has ended";
    return text(slot.state == State::block  ? "waits for the block at "
                : slot.state == State::spin ? "waits for other blocks at "
                                            : "waits for its wave at ",
                slot.where.file ? slot.where.file : "?", ":", slot.where.line);
  }

  std::string block_name() const {
    const Place& place = places_[static_cast<std::size_t>(current_)];
    return text("block ", place.at[0], ",", place.at[1], ",", place.at[2]);
  }

  [[noreturn]] void diverged(const Slot& a, int thread_a, const Slot& b, int thread_b) const {
    throw Error("gpu.diverged",
                text(block_name(), ": thread ", thread_a, " ", describe(a), ", thread ", thread_b, " ", describe(b)),
                "Report it: a kernel is wrong");
  }

  [[noreturn]] void fail(int thread) {
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      throw Error(error.id(), text(block_name(), ", thread ", thread, ": ", error.what()),
                  "Report it: a kernel is wrong");
    }
  }

  Fibers fibers_;
  std::vector<Slot> slots_;
  std::vector<bool> before_wait_;  // per thread
  std::vector<Place> places_;      // of the blocks that run together
  std::exception_ptr failure_;
  bool advanced_ = false;  // whether any thread has run in this round of blocks
  int current_ = 0;        // index among the blocks that run together
  int threads_ = 0, width_ = 0;
  int fences_ = 0;
};

}}}
