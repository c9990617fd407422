// HostLane: runs kernels on the CPU with a GPU's wave width and fragment layout, the threads of a block as fibers.
// It detects errors that a GPU ignores silently:
//  missing barrier        blocks and lanes run forward or backward, each lane as far as it can; both orders must agree
//  unwritten memory       shared memory and fresh device memory are filled with 0xFF: NaN as a float, huge as an index
//  assumed wave width     the same kernel runs with 32 and with 64 lanes
//  divergence             a collective that not all lanes reach in the same line, a thread that ends early
//  out of bounds          Memory checks every access; AddressSanitizer checks the rest
//  missing wait           before wait_for_previous_kernel() a thread may only read weights, and must not end
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "slm/backend/gpu/lane/block_emulator.hpp"
#include "slm/backend/gpu/lane/fragments.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Summation of the emulated matrix unit: c + a . b over the depth of a fragment.
struct FloatSums {
  static float add(float c, const float* a, const float* b, int depth) {
    float sum = 0;
    for (int k = 0; k < depth; ++k) sum += a[k] * b[k];
    return c + sum;
  }
};

/// Layout: of mma_layout.hpp; it also determines the wave width.
/// Public members: the operations of a lane, see lane.hpp.
template <class Layout, class Sums = FloatSums>
class HostLane {
 public:
  using Matrix = Layout;
  using Copy = CopyByRegisters;
  static constexpr int width = Layout::lanes;

  HostLane(BlockEmulator* emulator, int fiber)
      : emulator_(emulator), fiber_(fiber), thread_(fiber % emulator->threads()) {}

  static void forget_thread() {}

  int thread() const { return thread_; }
  int threads() const { return emulator_->threads(); }
  int wave() const { return thread_ / width; }
  int waves() const { return threads() / width; }
  int lane_index() const { return thread_ % width; }
  int block_x() const { return emulator_->block(fiber_, 0); }
  int block_y() const { return emulator_->block(fiber_, 1); }
  int block_z() const { return emulator_->block(fiber_, 2); }

  static void wait_for_previous_kernel() { before_wait.store(false, std::memory_order_relaxed); }
  static void begin_kernel() {
    BlockEmulator::require_waited();
    before_wait.store(true, std::memory_order_relaxed);
  }
  static void has_waited() { wait_for_previous_kernel(); }

  void barrier(Where where = Where::here()) const { barrier_of(threads(), nullptr, where); }
  void barrier_of(int threads, int*, Where where = Where::here()) const {
    emulator_->wait(fiber_, Slot::State::block, where, nullptr, nullptr, nullptr, threads);
  }
  void wave_barrier(Where where = Where::here()) const { emulator_->wait(fiber_, Slot::State::wave, where); }

  float wave_sum(float value, Where where = Where::here()) const {
    // In the order of a butterfly of shuffles, as on devices.
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
    emulator_->wait(fiber_, Slot::State::wave, where, &request, &result, [](Slot* slots, int count) {
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
    emulator_->wait(fiber_, Slot::State::wave, where, &request, &result, [](Slot* slots, int) {
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

  static void wait_for_copies() {}
  static int atomic_add(int* address, int value) {
    const RaceCheck::Ignored ignored;
    return std::exchange(*address, *address + value);
  }
  void fence() const {
    RaceCheck::release(emulator_->fences());
    RaceCheck::acquire(emulator_->fences());
  }
  void spin_until(const int* address, int value, Where where = Where::here()) const {
    emulator_->wait(fiber_, Slot::State::spin, where, address, nullptr, nullptr, value);
    fence();
  }
  template <class T>
  static const T& constant(const T* address) {
    return *address;
  }
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

  static int forget(int value) { return value; }
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
    emulator_->wait(fiber_, Slot::State::wave, where, &value, &result, combine);
    return result;
  }

  template <class Element>
  static std::uint16_t narrow(float value) {
    if constexpr (std::is_same_v<Element, half_t>) {
      value = value > 65504 ? 65504 : value < -65504 ? -65504 : value;  // NaN passes
    }
    return from_float<Element>(value).bits;
  }

  /// Emulates the matrix unit on elements placed by the layout.
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
        throw Error("gpu.fragment", "expected two lanes to hold the same element of a fragment, found different ones",
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
  int fiber_, thread_;
};

}}}
