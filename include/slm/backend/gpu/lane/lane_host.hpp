// HostLane: kernels run on the processor, the threads of a block as fibers, with the wave width and the fragments of a
// GPU. It finds what a GPU passes over in silence:
//   a missing barrier      blocks and lanes run forward or backward, a lane as far as it can; both orders must agree
//   unwritten memory       shared memory and fresh device memory are full of 0xFF: NaN as a float, huge as an index
//   an assumed width       the same kernel runs with 32 and with 64 lanes
//   divergence             a collective that not all lanes reach in the same line, a thread that leaves early
//   out of bounds          Memory checks every access; AddressSanitizer sees the rest
//   a missing wait         before wait_for_previous_kernel() a thread may read weights only, and not end
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "slm/backend/gpu/lane/fiber.hpp"
#include "slm/backend/gpu/lane/fragments.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"

namespace slm::inline v0_1::gpu {

/// Which of the threads that could run runs first.
enum class LaneOrder { forward, backward };

/// Runs the blocks of one launch after the other.
class BlockEmulator {
 public:
  struct Slot {  // what a thread waits for
    enum class State { ready, wave, block, done } state = State::ready;
    Where where = {};
    const void* in = nullptr;
    void* out = nullptr;
    void (*combine)(Slot* wave, int width) = nullptr;
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
    alignas(16) typename K::Shared shared;
    struct Context {
      BlockEmulator* self;
      const typename K::Args* args;
      typename K::Shared* shared;
    } context{this, &args, &shared};
    const auto body = [](void* opaque, int thread) {
      const auto& c = *static_cast<Context*>(opaque);
      try {
        run_thread<K>(Lane{c.self, thread}, *c.args, *c.shared);
        if (before_wait.load(std::memory_order_relaxed)) {
          throw Error("gpu.not-waited", "a thread has ended without waiting for the previous kernel",
                      "Report it: a kernel is wrong");
        }
      } catch (...) {
        c.self->failure_ = std::current_exception();
      }
      const RaceCheck::Ignored ignored;
      c.self->slots_[static_cast<std::size_t>(thread)].state = Slot::State::done;
    };
    const std::int64_t blocks = std::int64_t{grid.x} * grid.y * grid.z;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t block = order == LaneOrder::forward ? i : blocks - 1 - i;
      block_[0] = static_cast<int>(block % grid.x);
      block_[1] = static_cast<int>(block / grid.x % grid.y);
      block_[2] = static_cast<int>(block / grid.x / grid.y);
      std::memset(static_cast<void*>(&shared), 0xff, sizeof shared);
      slots_.assign(static_cast<std::size_t>(threads_), Slot{});
      before_wait_.assign(static_cast<std::size_t>(threads_), true);
      fibers_.start(threads_, body, &context);
      {
        const RaceCheck::Ignored ignored;
        run_block();
      }
      fibers_.joined();
    }
  }

  int threads() const { return threads_; }
  int block(int axis) const { return block_[axis]; }

  /// From a thread: waits until the others of its wave, or of its block, are there too.
  void wait(int thread, Slot::State state, Where where, const void* in = nullptr, void* out = nullptr,
            void (*combine)(Slot*, int) = nullptr) {
    // A barrier is an order of memory for its block or wave. Other collectives exchange registers and are none.
    Slot* const meeting = combine != nullptr            ? nullptr
                          : state == Slot::State::block ? &slots_.front()
                                                        : first_of(thread / width_);
    if (meeting != nullptr) RaceCheck::release(meeting_of(meeting, state));
    {
      const RaceCheck::Ignored ignored;
      slots_[static_cast<std::size_t>(thread)] = {state, where, in, out, combine};
      fibers_.yield();
    }
    if (meeting != nullptr) RaceCheck::acquire(meeting_of(meeting, state));
  }

 private:
  using State = Slot::State;

  void run_block() {
    const int waves = threads_ / width_;
    while (true) {
      for (int i = 0; i < waves; ++i) run_wave(order == LaneOrder::forward ? i : waves - 1 - i);
      int done = 0;
      for (int wave = 0; wave < waves; ++wave) done += first_of(wave)->state == State::done;
      if (done == waves) return;
      const Slot* const one = first_of(0);
      for (int wave = 0; wave < waves; ++wave) {
        const Slot* const other = first_of(wave);
        if (other->state != one->state || !same(other->where, one->where)) diverged(*one, 0, *other, wave * width_);
      }
      for (Slot& slot : slots_) slot.state = State::ready;
    }
  }

  /// Until all its threads stand at a barrier of the block, or are done.
  void run_wave(int wave) {
    Slot* const slots = first_of(wave);
    while (slots[0].state != State::block && slots[0].state != State::done) {
      for (int i = 0; i < width_; ++i) {
        const int thread = wave * width_ + (order == LaneOrder::forward ? i : width_ - 1 - i);
        const auto own = static_cast<std::size_t>(thread);
        before_wait.store(before_wait_[own], std::memory_order_relaxed);
        fibers_.resume(thread);
        before_wait_[own] = before_wait.exchange(false, std::memory_order_relaxed);
        if (failure_) fail(thread);
      }
      for (int i = 1; i < width_; ++i) {
        if (slots[i].state != slots[0].state || slots[i].combine != slots[0].combine ||
            !same(slots[i].where, slots[0].where)) {
          diverged(slots[0], wave * width_, slots[i], wave * width_ + i);
        }
      }
      if (slots[0].state == State::wave) {
        try {
          if (slots[0].combine != nullptr) slots[0].combine(slots, width_);
        } catch (const Error&) {
          failure_ = std::current_exception();
          fail(wave * width_);
        }
        for (int i = 0; i < width_; ++i) slots[i].state = State::ready;
      }
    }
  }

  /// An address that stands for a barrier: of the block, or of a wave.
  static void* meeting_of(Slot* slot, State state) {
    return state == State::block ? static_cast<void*>(&slot->out) : static_cast<void*>(&slot->in);
  }

  Slot* first_of(int wave) { return &slots_[static_cast<std::size_t>(wave * width_)]; }

  static bool same(const Where& a, const Where& b) {
    return a.line == b.line && (a.file == b.file || (a.file && b.file && std::strcmp(a.file, b.file) == 0));
  }

  static std::string describe(const Slot& slot) {
    if (slot.state == State::done) return "has ended";
    return text(slot.state == State::block ? "waits for the block at " : "waits for its wave at ",
                slot.where.file ? slot.where.file : "?", ":", slot.where.line);
  }

  [[noreturn]] void diverged(const Slot& a, int thread_a, const Slot& b, int thread_b) const {
    throw Error("gpu.diverged",
                text("block ", block_[0], ",", block_[1], ",", block_[2], ": thread ", thread_a, " ", describe(a),
                     ", thread ", thread_b, " ", describe(b)),
                "Report it: a kernel is wrong");
  }

  [[noreturn]] void fail(int thread) {
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      throw Error(error.id(),
                  text("block ", block_[0], ",", block_[1], ",", block_[2], ", thread ", thread, ": ", error.what()),
                  "Report it: a kernel is wrong");
    }
  }

  Fibers fibers_;
  std::vector<Slot> slots_;
  std::vector<bool> before_wait_;  // of each thread
  std::exception_ptr failure_;
  int threads_ = 0, width_ = 0;
  int block_[3] = {};
};

/// How the emulated matrix unit adds up: c + a . b over the depth of a fragment.
struct FloatSums {
  static float add(float c, const float* a, const float* b, int depth) {
    float sum = 0;
    for (int k = 0; k < depth; ++k) sum += a[k] * b[k];
    return c + sum;
  }
};

/// Layout: of mma_layout.hpp; it also says how wide a wave is.
template <class Layout, class Sums = FloatSums>
class HostLane {
 public:
  using Matrix = Layout;
  static constexpr int width = Layout::lanes;

  HostLane(BlockEmulator* emulator, int thread) : emulator_(emulator), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const { return emulator_->threads(); }
  int wave() const { return thread_ / width; }
  int waves() const { return threads() / width; }
  int lane_index() const { return thread_ % width; }
  int block_x() const { return emulator_->block(0); }
  int block_y() const { return emulator_->block(1); }
  int block_z() const { return emulator_->block(2); }

  static void wait_for_previous_kernel() { before_wait.store(false, std::memory_order_relaxed); }

  void barrier(Where where = Where::here()) const { emulator_->wait(thread_, Slot::State::block, where); }
  void wave_barrier(Where where = Where::here()) const { emulator_->wait(thread_, Slot::State::wave, where); }

  float wave_sum(float value, Where where = Where::here()) const {
    // In the order of a butterfly of shuffles, as the devices do it.
    return collect(value, where, [](Slot* slots, int count) {
      float values[width];
      for (int i = 0; i < count; ++i) values[i] = *static_cast<const float*>(slots[i].in);
      for (int step = count / 2; step > 0; step /= 2) {
        for (int i = 0; i < step; ++i) values[i] += values[i + step];
      }
      for (int i = 0; i < count; ++i) *static_cast<float*>(slots[i].out) = values[0];
    });
  }

  float wave_max(float value, Where where = Where::here()) const {
    return collect(value, where, [](Slot* slots, int count) {
      float largest = *static_cast<const float*>(slots[0].in);
      for (int i = 1; i < count; ++i) largest = std::fmax(largest, *static_cast<const float*>(slots[i].in));
      for (int i = 0; i < count; ++i) *static_cast<float*>(slots[i].out) = largest;
    });
  }

  template <class T>
  T shuffle(T value, int from, Where where = Where::here()) const {
    struct Request {
      T value;
      int from;
    } request{value, from};
    T result{};
    emulator_->wait(thread_, Slot::State::wave, where, &request, &result, [](Slot* slots, int count) {
      for (int i = 0; i < count; ++i) {
        const int source = static_cast<const Request*>(slots[i].in)->from;
        if (source < 0 || source >= count) {
          throw Error("gpu.bad-lane", text("a shuffle reads lane ", source, " of a wave of ", count),
                      "Report it: a kernel is wrong");
        }
        *static_cast<T*>(slots[i].out) = static_cast<const Request*>(slots[source].in)->value;
      }
    });
    return result;
  }

  template <class Element>
  FragmentC<Layout> mma(FragmentA<Layout> a, FragmentB<Layout> b, FragmentC<Layout> c,
                        Where where = Where::here()) const {
    struct Request {
      const FragmentA<Layout>* a;
      const FragmentB<Layout>* b;
      const FragmentC<Layout>* c;
    } request{&a, &b, &c};
    FragmentC<Layout> result;
    emulator_->wait(thread_, Slot::State::wave, where, &request, &result, [](Slot* slots, int) {
      multiply<Element>([slots](int lane) { return *static_cast<const Request*>(slots[lane].in); },
                        [slots](int lane) { return static_cast<FragmentC<Layout>*>(slots[lane].out); });
    });
    return result;
  }

  TilesA<Layout> tiles_a(const std::uint32_t* tile, int row_words) const { return {tile, row_words, lane_index()}; }
  TilesTransposedA<Layout> tiles_transposed_a(const std::uint32_t* tile, int row_words) const {
    return {tile, row_words, lane_index()};
  }
  TilesB<Layout> tiles_b(const std::uint32_t* tile, int row_words) const { return {tile, row_words, lane_index()}; }

  static int atomic_add(int* address, int value) { return std::exchange(*address, *address + value); }
  static void fence() {}
  template <class T>
  static T load_stream(const T* address) {
    return *address;
  }

  static std::uint32_t put_bits(std::uint32_t word, std::uint32_t mask, std::uint32_t base) {
    return (word & mask) | base;
  }
  template <class T>
  static T keep(T value) {
    return value;
  }

  template <class Element>
  static std::uint32_t pack2(float low, float high) {
    return std::uint32_t{narrow<Element>(low)} | std::uint32_t{narrow<Element>(high)} << 16;
  }
  static std::uint32_t pack2_within(float low, float high) { return pack2<half_t>(low, high); }
  template <int I, int J, int K, int M>
  static std::uint32_t bytes(std::uint32_t low, std::uint32_t high) {
    const std::uint64_t both = std::uint64_t{high} << 32 | low;
    const auto byte = [both](int i) { return static_cast<std::uint32_t>(both >> (8 * i) & 0xff); };
    return byte(I) | byte(J) << 8 | byte(K) << 16 | byte(M) << 24;
  }
  template <class Element>
  static float unpack_low(std::uint32_t word) {
    return to_float(Element{static_cast<std::uint16_t>(word)});
  }
  template <class Element>
  static float unpack_high(std::uint32_t word) {
    return to_float(Element{static_cast<std::uint16_t>(word >> 16)});
  }
  static float exp2(float x) { return std::exp2(x); }

 private:
  using Slot = BlockEmulator::Slot;

  float collect(float value, Where where, void (*combine)(Slot*, int)) const {
    float result = 0;
    emulator_->wait(thread_, Slot::State::wave, where, &value, &result, combine);
    return result;
  }

  template <class Element>
  static std::uint16_t narrow(float value) {
    if constexpr (std::is_same_v<Element, half_t>) {
      value = value > 65504 ? 65504 : value < -65504 ? -65504 : value;  // NaN passes
    }
    return from_float<Element>(value).bits;
  }

  /// What the matrix unit does, with the elements where its layout puts them.
  template <class Element, class Inputs, class Output>
  static void multiply(Inputs inputs, Output output) {
    constexpr int slots = Layout::run;
    float a[Layout::rows][Layout::depth], b[Layout::columns][Layout::depth];
    bool a_set[Layout::rows][Layout::depth] = {}, b_set[Layout::columns][Layout::depth] = {};
    const auto element = [](std::uint32_t word, int slot) {
      return to_float(Element{static_cast<std::uint16_t>(word >> (16 * (slot % 2)))});
    };
    const auto put = [](float& to, bool& set, float value) {
      if (set && std::bit_cast<std::uint32_t>(to) != std::bit_cast<std::uint32_t>(value)) {
        throw Error("gpu.fragment", "two lanes that must hold the same element of a fragment do not",
                    "Report it: a kernel is wrong");
      }
      to = value;
      set = true;
    };
    for (int lane = 0; lane < width; ++lane) {
      const auto request = inputs(lane);
      for (int slot = 0; slot < slots; ++slot) {
        const int k = Layout::k(lane, slot);
        for (int row = 0; row < Layout::row_slots; ++row) {
          const int r = Layout::a_row(lane, row);
          put(a[r][k], a_set[r][k], element(request.a->word[Layout::a_word(row, slot / 2)], slot));
        }
        const int n = Layout::b_column(lane);
        put(b[n][k], b_set[n][k], element(request.b->word[slot / 2], slot));
      }
    }
    for (int lane = 0; lane < width; ++lane) {
      const FragmentC<Layout>& c = *inputs(lane).c;
      for (int i = 0; i < Layout::c_floats; ++i) {
        output(lane)->value[i] =
            Sums::add(c.value[i], a[Layout::c_row(lane, i)], b[Layout::c_column(lane, i)], Layout::depth);
      }
    }
  }

  BlockEmulator* emulator_;
  int thread_;
};

}  // namespace slm::gpu
