// Steps by persistent kernels: fewer launches, the same bits, and detection of missing waits.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/backend/gpu/runtime/persistent.hpp"
#include "slm/decode/processor.hpp"
#include "slm/decode/random.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using backend::GpuOptions;

namespace {

struct ShiftArgs {
  gpu::Memory<const float> from;
  gpu::Memory<float> to;
  int shift;
  bool never_waits;
};

/// to[i] = 1 + from[(i + shift) % size], one block per 64 of them, with selectable faults.
template <int Number>
struct Shift {
  using Args = ShiftArgs;
  struct Shared {
    float value[64];
  };
  static constexpr int max_block = 256, waves = 2;  // of 64 or of 128 threads: fewer than the persistent kernel has
  static constexpr bool waits = true;
  static gpu::Grid grid(const Args& args, int wave_width) {
    return {.x = static_cast<int>(args.to.size / 64), .threads = waves * wave_width};
  }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    if (!args.never_waits) lane.wait_for_previous_kernel();
    const int t = lane.thread(), at = lane.block_x() * 64 + t;
    if (t < 64 && !args.never_waits) {
      shared.value[63 - t] = args.from[(at + args.shift) % args.from.size];
    }
    lane.barrier();
    if (t < 64 && !args.never_waits) args.to[at] = 1 + shared.value[63 - t];
  }
};

using Both = gpu::Persistent<Shift<0>, Shift<1>>;

/// Faults of the wait between two operations.
template <class Layout>
struct Hasty : gpu::HostLane<Layout> {
  using gpu::HostLane<Layout>::HostLane;
  void spin_until(const int*, int, gpu::Where = gpu::Where::here()) const {}
};
template <class Layout>
struct Silent : gpu::HostLane<Layout> {
  using gpu::HostLane<Layout>::HostLane;
  static int atomic_add(int*, int) { return 0; }
};

/// The result of eight operations, each reading the output of the previous one, on zeros with three concurrent blocks.
template <class Lane>
std::vector<float> shifted(gpu::LaneOrder order, bool never_waits = false) {
  constexpr int count = 8, size = 64 * 7;
  std::vector<float> one(size, 0.0f), other(size, NAN);
  struct alignas(16) Program {
    gpu::Operation operations[count];
    alignas(16) ShiftArgs args[count];
  } program{};
  for (int i = 0; i < count; ++i) {
    program.operations[i] = {i % 2, 7, 1, 7,
                             static_cast<std::int64_t>(offsetof(Program, args) + i * sizeof(ShiftArgs))};
    std::vector<float>&from = i % 2 == 0 ? one : other, &to = i % 2 == 0 ? other : one;
    program.args[i] = {{from.data(), size}, {to.data(), size}, 64 * 3 + 1, never_waits && i == 5};
  }
  int arrived = 0;
  gpu::BlockEmulator emulator;
  emulator.order = order;
  for (int times = 0; times < 2; ++times) {  // the count of arrivals is zero again after the first time
    emulator.run<Both, Lane>({.program = {reinterpret_cast<const std::byte*>(&program), sizeof program},
                              .first = 0,
                              .count = count,
                              .blocks = 3,
                              .arrived = &arrived});
  }
  CHECK(arrived == 0);
  return one;
}

constexpr gpu::LaneOrder orders[] = {gpu::LaneOrder::forward, gpu::LaneOrder::backward};

template <class Layout>
void check_waits() {
  const std::vector<float> expected(64 * 7, 16.0f);
  for (const gpu::LaneOrder order : orders) {
    CHECK(shifted<gpu::HostLane<Layout>>(order) == expected);
    CHECK(shifted<Hasty<Layout>>(order) != expected);
    CHECK_THROWS_WITH(shifted<Silent<Layout>>(order), Catch::Contains("wait for each other forever"));
    CHECK_THROWS_WITH((shifted<gpu::HostLane<Layout>>(order, true)), Catch::Contains("gpu.not-waited"));
  }
}

}  // namespace

TEST_CASE(
    "a persistent kernel continues only after all blocks have ended the previous operation, and the test detects "
    "violations") {
  check_waits<gpu::MmaSync16x8x16>();
  check_waits<gpu::Mfma16x16x16>();
  check_waits<gpu::Wmma16x16x16>();
}

namespace {

constexpr ModelConfig shape{
    .layers = 3, .hidden = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 101};

template <class Device>
using TextOn = Session<Model<Dynamic, Bf16, Device>>;

template <class Device>
TextOn<Device> load_on(const std::filesystem::path& folder, Device device) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder);
  const Dynamic config{checkpoint->config()};
  return TextOn<Device>({config, std::move(checkpoint), std::move(device)});
}

template <class Device>
std::vector<float> step(TextOn<Device>& text, Token token) {
  const auto logits = text.forward(std::vector<Token>{token}, 1);
  return {logits.data, logits.data + logits.size()};
}

template <class Device>
Device staying(int order) {
  return Device(GpuOptions{.device = order, .persistent_steps = true});
}

template <class Device>
void check_steps() {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  for (const int order : {0, 1}) {
    Device device = staying<Device>(order);
    TextOn<Device> text = load_on(folder.path(), device), plain = load_on(folder.path(), Device(1 - order));
    const int logits = 1;
    for (int i = 0; i < 70; ++i) {
      const Token token = static_cast<Token>(i * 7 % 101);
      const long before = device.runtime().launches();
      REQUIRE(step(text, token) == step(plain, token));
      const bool first = i == 0 || i == 64;  // of a shape
      CHECK(device.runtime().launches() - before == (first ? 1 + 5 * shape.layers : 1) + logits);
    }
  }
}

}  // namespace

TEST_CASE("a recorded step is one launch and one for its logits, with the bits of launches") {
  check_steps<backend::Lanes32>();
}

TEST_CASE("a recorded step on AMD's lanes is one launch and one for its logits, with the bits of launches", "[long]") {
  check_steps<backend::Lanes64>();
  check_steps<backend::LanesRdna>();
}

TEST_CASE("a draft's tokens are one launch, and equal those of launches") {
  const auto folder =
      fixture(GENERATE("models/llama-mha3h", "models/gpt2", "models/opt-preln", "models/opt-postln-proj"));
  const Sampling sampling = GENERATE(Sampling{.temperature = 0}, Sampling{.temperature = 0.9f, .seed = 8},
                                     Sampling{.temperature = 0.9f, .top_k = 20, .top_p = 0.9f, .seed = 8});
  const int order = sampling.top_k > 0 ? 1 : 0;  // both orders of threads occur
  using backend::Lanes32;
  Lanes32 device = staying<Lanes32>(order);
  TextOn<Lanes32> text = load_on(folder, device), plain = load_on(folder, Lanes32(1 - order));
  const Draw draw = draw_of(sampling, text.info().vocab);
  Token anchor = 9;
  for (int round = 0; round < 6; ++round) {
    const long before = device.runtime().launches();
    const auto found = text.propose(std::vector<Token>{anchor}, 5, draw);
    const std::vector<Token> tokens(found.begin(), found.end());
    const auto expected = plain.propose(std::vector<Token>{anchor}, 5, draw);
    REQUIRE(tokens == std::vector<Token>(expected.begin(), expected.end()));
    if (round > 0) CHECK(device.runtime().launches() - before == 1);
    anchor = tokens.back();
  }
}
