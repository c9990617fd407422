// The host's lanes: collectives, fragments, and kernels with one injected fault each, which must be detected.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "slm/backend/gpu/runtime/runtime_lanes.hpp"

using namespace slm;
using namespace slm::gpu;
using backend::LanesRuntime;

namespace {

/// Reverses the values of a block through shared memory. The arguments select faults.
struct Reverse {
  enum Fault {
    none,
    no_barrier,
    unwritten,
    width_32,
    past_the_end,
    divergent_sum,
    helper_divergence,
    early_exit,
    other_barrier,
    bad_shuffle
  };
  struct Args {
    Memory<const float> in;
    Memory<float> out;
    Fault fault;
  };
  struct Shared {
    float value[256];
  };
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = static_cast<int>(args.in.size / 128), .threads = 128}; }

  template <class Lane>
  static SLM_DEVICE float helper(Lane lane, float v, Where where = Where::here()) {
    return lane.wave_sum(v, where);
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int t = lane.thread();
    const std::int64_t first = lane.block_x() * 128;
    if (args.fault == early_exit && t >= 96) return;
    if (args.fault != unwritten || t != 5) shared.value[t] = args.in[first + t];
    if (args.fault != no_barrier) {
      if (args.fault == other_barrier && t >= 64) {
        lane.barrier();
      } else {
        lane.barrier();
      }
    }
    float v = shared.value[127 - t];
    if (args.fault == width_32) {  // a sum over an assumed wave width
      v = 0;
      for (int i = 0; i < 32; ++i) v += lane.shuffle(1.0f, i % 32);
      v = v == static_cast<float>(Lane::width) ? shared.value[127 - t] : -1;
    }
    if (args.fault == divergent_sum) {
      if (t % 2 == 0) v = lane.wave_sum(v);
    }
    if (args.fault == helper_divergence) {
      if (t % 2 == 0) {
        v = helper(lane, v);
      } else {
        v = helper(lane, -v);
      }
    }
    if (args.fault == bad_shuffle) v = lane.shuffle(v, Lane::width);
    args.out[first + t + (args.fault == past_the_end ? 1 : 0)] = v;
  }
};

/// Empty after success, the error's id, or "wrong result".
template <class Layout>
std::string outcome(Reverse::Fault fault, int device) {
  LanesRuntime<Layout> runtime(device);
  auto stream = runtime.make_stream();
  std::vector<float> in(256), out(256);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  try {
    runtime.template launch<Reverse>({{in.data(), 256}, {out.data(), 256}, fault}, stream);
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(std::string(error.what()).find("block ") != std::string::npos);
    return error.id();
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != in[i / 128 * 128 + 127 - i % 128]) return "wrong result";
  }
  return "";
}

template <class Layout>
std::vector<std::string> both_orders(Reverse::Fault fault) {
  return {outcome<Layout>(fault, 0), outcome<Layout>(fault, 1)};
}

using Outcomes = std::vector<std::string>;

}  // namespace

TEST_CASE("a correct kernel has the same results with 32 and 64 lanes, forward and backward") {
  CHECK(both_orders<MmaSync16x8x16>(Reverse::none) == Outcomes{"", ""});
  CHECK(both_orders<Mfma16x16x16>(Reverse::none) == Outcomes{"", ""});
  CHECK(both_orders<Wmma16x16x16>(Reverse::none) == Outcomes{"", ""});
}

TEST_CASE("injected faults are detected") {
  const auto everywhere = [](Reverse::Fault fault, const std::string& id) {
    CHECK(both_orders<MmaSync16x8x16>(fault) == Outcomes{id, id});
    CHECK(both_orders<Mfma16x16x16>(fault) == Outcomes{id, id});
  };
  SECTION("a missing barrier") { everywhere(Reverse::no_barrier, "wrong result"); }
  SECTION("unwritten shared memory") { everywhere(Reverse::unwritten, "wrong result"); }
  SECTION("an index outside a buffer") { everywhere(Reverse::past_the_end, "gpu.out-of-bounds"); }
  SECTION("a sum that half of the lanes reach") { everywhere(Reverse::divergent_sum, "gpu.diverged"); }
  SECTION("a sum in two branches through one helper") { everywhere(Reverse::helper_divergence, "gpu.diverged"); }
  SECTION("threads that leave before a barrier") { everywhere(Reverse::early_exit, "gpu.diverged"); }
  SECTION("two barriers mistaken for one") { everywhere(Reverse::other_barrier, "gpu.diverged"); }
  SECTION("a shuffle from a missing lane") { everywhere(Reverse::bad_shuffle, "gpu.bad-lane"); }
  SECTION("an assumed wave of 32") {
    CHECK(both_orders<MmaSync16x8x16>(Reverse::width_32) == Outcomes{"", ""});
    CHECK(both_orders<Mfma16x16x16>(Reverse::width_32) == Outcomes{"wrong result", "wrong result"});
  }
}

namespace {

/// out[i] = weight[i] * x[i] by a kernel that prefetches its weight before it waits.
struct Weigh {
  enum Fault { none, x_too_early, out_too_early, some_threads, no_thread };
  struct Args {
    ConstantMemory<float> weight;
    Memory<const float> x;
    Memory<float> out;
    Fault fault;
  };
  struct Shared {};
  static constexpr int max_block = 64;
  static constexpr bool waits = true;
  static Grid grid(const Args&, int) { return {.x = 2, .threads = 64}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int i = lane.block_x() * 64 + lane.thread();
    const float weight = args.weight[i];
    float x = args.fault == x_too_early ? args.x[i] : 0;
    if (args.fault == out_too_early) args.out[i] = 0;
    if (args.fault == no_thread || (args.fault == some_threads && lane.thread() >= 40)) return;
    lane.wait_for_previous_kernel();
    x = args.x[i];
    args.out[i] = weight * x;
  }
};

/// Empty, or the error's id.
std::string outcome_of(Weigh::Fault fault, int device) {
  LanesRuntime<MmaSync16x8x16> runtime(device);
  auto stream = runtime.make_stream();
  std::vector<float> weight(128, 2.0f), x(128, 3.0f), out(128);
  std::string id;
  try {
    runtime.launch<Weigh>({{weight.data(), 128}, {x.data(), 128}, {out.data(), 128}, fault}, stream);
    CHECK(out == std::vector<float>(128, 6.0f));
  } catch (const Error& error) {
    id = error.id();
  }
  runtime.launch<Weigh>({{weight.data(), 128}, {x.data(), 128}, {out.data(), 128}, Weigh::none}, stream);
  CHECK(out == std::vector<float>(128, 6.0f));
  return id;
}

}  // namespace

TEST_CASE("a kernel that accesses more than weights before it waits, or never waits, is detected") {
  for (const int device : {0, 1}) {
    CHECK(outcome_of(Weigh::none, device) == "");
    for (const Weigh::Fault fault : {Weigh::x_too_early, Weigh::out_too_early, Weigh::some_threads, Weigh::no_thread}) {
      CAPTURE(fault, device);
      CHECK(outcome_of(fault, device) == "gpu.not-waited");
    }
  }
}

namespace {

/// c = a . b^T for one fragment; a [rows, depth], b [columns, depth], read by the layout.
template <class Element, bool Duplicate = true>
struct OneFragment {
  struct Args {
    Memory<const Element> a, b;
    Memory<float> c;
  };
  struct Shared {};
  static constexpr int max_block = 64;
  static Grid grid(const Args&, int wave_width) { return {.threads = wave_width}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    using L = typename Lane::Matrix;
    const int i = lane.lane_index();
    FragmentA<L> a;
    FragmentB<L> b;
    FragmentC<L> c;
    for (int pair = 0; pair < L::run / 2; ++pair) {
      const auto two = [&](Memory<const Element> m, int row) {
        return std::uint32_t{m[row * L::depth + L::k(i, 2 * pair)].bits} |
               std::uint32_t{m[row * L::depth + L::k(i, 2 * pair + 1)].bits} << 16;
      };
      for (int s = 0; s < L::row_slots; ++s) a.word[L::a_word(s, pair)] = two(args.a, L::a_row(i, s));
      b.word[pair] = Duplicate || i < 16 ? two(args.b, L::b_column(i)) : 0;
    }
    for (float& value : c.value) value = 1;
    c = lane.template mma<Element>(a, b, c);
    for (int j = 0; j < L::c_floats; ++j) args.c[L::c_row(i, j) * L::columns + L::c_column(i, j)] = c.value[j];
  }
};

template <class Layout, class Element>
void check_fragment() {
  std::vector<Element> a(Layout::rows * Layout::depth), b(Layout::columns * Layout::depth);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = from_float<Element>(static_cast<float>(i % 13) - 6);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = from_float<Element>(static_cast<float>(i % 7) - 3);
  std::vector<float> c(Layout::rows * Layout::columns, -99);
  LanesRuntime<Layout> runtime;
  auto stream = runtime.make_stream();
  const auto size = [](const auto& v) { return static_cast<std::int64_t>(v.size()); };
  runtime.template launch<OneFragment<Element>>({{a.data(), size(a)}, {b.data(), size(b)}, {c.data(), size(c)}},
                                                stream);
  for (int m = 0; m < Layout::rows; ++m) {
    for (int n = 0; n < Layout::columns; ++n) {
      float sum = 1;
      for (int k = 0; k < Layout::depth; ++k) {
        sum += to_float(a[static_cast<std::size_t>(m * Layout::depth + k)]) *
               to_float(b[static_cast<std::size_t>(n * Layout::depth + k)]);
      }
      CAPTURE(Layout::name, m, n);
      REQUIRE(c[static_cast<std::size_t>(m * Layout::columns + n)] == sum);
    }
  }
}

}  // namespace

TEST_CASE("fragments of every layout multiply matrices") {
  check_fragment<MmaSync16x8x16, bfloat16_t>();
  check_fragment<MmaSync16x8x16, half_t>();
  check_fragment<Mfma16x16x16, bfloat16_t>();
  check_fragment<Mfma16x16x16, half_t>();
  check_fragment<Mfma32x32x8, bfloat16_t>();
  check_fragment<Wmma16x16x16, bfloat16_t>();
  check_fragment<Wmma16x16x16, half_t>();
}

TEST_CASE("a WMMA fragment whose upper half differs from its lower half is rejected") {
  std::vector<bfloat16_t> a(256, from_float<bfloat16_t>(1)), b = a;
  std::vector<float> c(256);
  LanesRuntime<Wmma16x16x16> runtime;
  auto stream = runtime.make_stream();
  CHECK_THROWS_WITH(
      (runtime.launch<OneFragment<bfloat16_t, false>>({{a.data(), 256}, {b.data(), 256}, {c.data(), 256}}, stream)),
      Catch::Contains("gpu.fragment"));
}

TEST_CASE("a captured stream runs at its replay, and not before") {
  LanesRuntime<MmaSync16x8x16> runtime, other(1);
  auto stream = runtime.make_stream(), foreign = other.make_stream();
  std::vector<float> in(128, 2), out(128, 0);
  runtime.begin_capture(stream);
  runtime.launch<Reverse>({{in.data(), 128}, {out.data(), 128}, Reverse::none}, stream);
  const auto graph = runtime.end_capture(stream);
  CHECK(out[0] == 0);
  runtime.replay(graph, stream);
  CHECK(out[0] == 2);
  in[127] = 7;
  runtime.replay(graph, stream);
  CHECK(out[0] == 7);
  CHECK_THROWS_WITH(runtime.replay(graph, foreign), Catch::Contains("gpu.other-device"));
  CHECK_THROWS_WITH(runtime.synchronize(foreign), Catch::Contains("gpu.other-device"));
  CHECK_THROWS_WITH(LanesRuntime<MmaSync16x8x16>(2), Catch::Contains("gpu.no-device"));
}
