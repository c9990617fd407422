// How a step reaches the device: five launches a layer, recorded once and replayed, the largest logit chosen there.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/model/model.hpp"
#include "support/gpu_layer.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using backend::GpuOptions;
using backend::Lanes32;

namespace {

constexpr ModelConfig shape{
    .layers = 3, .hidden = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 101};

using OnLanes = Model<Dynamic, Bf16, Lanes32>;

OnLanes load_on(const std::filesystem::path& folder, Lanes32 device) {
  return OnLanes(Dynamic{shape}, std::make_shared<const Checkpoint>(folder), device);
}

std::vector<float> step(OnLanes& model, Token token) {
  const auto logits = model.extend(std::vector<Token>{token}, 1);
  return {logits.data, logits.data + logits.size()};
}

}  // namespace

TEST_CASE("a step is five launches a layer, and a recorded one is replayed") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path(), shape, 3);
  Lanes32 device;
  OnLanes model = load_on(folder.path(), device);
  const auto launches_of = [&](Token token) {
    const long before = device.runtime().launches();
    step(model, token);
    return device.runtime().launches() - before;
  };
  const int numbers = 1, embed = 1, logits = 1;
  CHECK(launches_of(5) == numbers + embed + 5 * shape.layers + logits);  // runs
  CHECK(launches_of(6) == numbers + embed + 5 * shape.layers + logits);  // is recorded
  CHECK(launches_of(7) == numbers + logits);                             // is replayed
  CHECK(launches_of(8) == numbers + logits);
}

TEST_CASE("replayed steps have the bits of steps that run, over the border of a chunk and after going back") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path(), shape, 3);
  OnLanes replayed = load_on(folder.path(), Lanes32{});
  const auto check = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      OnLanes fresh = load_on(folder.path(), Lanes32{1});  // its first step of a shape runs
      std::vector<Token> text;
      for (int k = 0; k < i; ++k) text.push_back(static_cast<Token>(k * 7 % 101));
      if (i > 0) fresh.extend(text, 0);
      const Token token = static_cast<Token>(i * 7 % 101);
      REQUIRE(step(replayed, token) == step(fresh, token));
    }
  };
  check(0, 5);
  std::vector<Token> text;
  for (int k = 5; k < 60; ++k) text.push_back(static_cast<Token>(k * 7 % 101));
  replayed.extend(text, 0);
  check(60, 70);  // two chunks from 64 on, and scratch memory that has grown
  replayed.truncate(62);
  check(62, 66);
}

TEST_CASE("the largest logit is chosen on the device") {
  Lanes32 device(1);
  const int vocab = 1003, hidden = 32;
  RandomTensor<Fp32> table(vocab, hidden, 5);
  const auto weight = device.pack<Fp32>(std::vector<Tensor>{table.tensor});
  Random random(9);
  std::vector<float> x = random.vector(5 * hidden), logits(5 * vocab);
  for (int i = 0; i < hidden; ++i)
    x[static_cast<std::size_t>(3 * hidden + i)] = 0;  // all logits equal: the lowest wins
  for (int i = 0; i < hidden; ++i) x[static_cast<std::size_t>(4 * hidden + i)] = std::nanf("");
  std::vector<Token> chosen(5, -1), expected;
  const Norm norm{.kind = NormKind::none};
  device.logits(view_of(x, 5), norm, weight, view_of(logits, 5));
  for (int r = 0; r < 5; ++r) {
    const float* row = &logits[static_cast<std::size_t>(r * vocab)];
    expected.push_back(static_cast<Token>(std::max_element(row, row + vocab) - row));
  }
  for (int again = 0; again < 2; ++again) {
    device.greedy(view_of(x, 5), norm, weight, chosen);
    CHECK(chosen == expected);
  }
  CHECK(expected[3] == 0);
}
