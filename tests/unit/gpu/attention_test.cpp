// Attention of backend::Gpu on emulated devices against Reference, and bit for bit against itself: one row alone, many
// rows, split along the sequence or not.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "support/gpu_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Gpu;
using backend::GpuOptions;
using backend::Reference;

namespace {

struct Case {
  Heads heads;
  int capacity, position, rows, window;
  bool alibi;
};
// Chunks of 64: inside one, across several, windows that begin inside a chunk, rings, every bucket of head dimensions.
const std::vector<Case> cases{{{2, 1, 16}, 100, 0, 1, 0, false},   {{2, 2, 10}, 100, 60, 9, 0, false},
                              {{4, 1, 64}, 300, 250, 20, 0, true}, {{3, 3, 80}, 200, 130, 3, 50, false},
                              {{6, 2, 96}, 200, 190, 1, 0, true},  {{2, 1, 128}, 128, 500, 7, 70, false},
                              {{1, 1, 200}, 90, 80, 5, 0, false}};

struct Inputs {
  std::vector<float> q, slopes;
  HalfCache cache;
  TestCache plain;

  explicit Inputs(const Case& c) : cache(c.heads, c.capacity), plain(c.heads, c.capacity) {
    Random random(31);
    q = random.vector(static_cast<std::size_t>(c.rows * c.heads.query * c.heads.dim), 2);
    slopes = random.vector(static_cast<std::size_t>(c.heads.query), 0.1f);
    // Only what has been written by now holds numbers; the rest stays NaN.
    const int last = c.position + c.rows - 1;
    for (int h = 0; h < c.heads.kv; ++h) {
      for (int p = std::max(0, last + 1 - c.capacity); p <= last; ++p) {
        for (int d = 0; d < c.heads.dim; ++d) {
          const auto at = static_cast<std::size_t>((h * c.capacity + p % c.capacity) * c.heads.dim + d);
          plain.keys[at] = to_float(cache.keys[at] = from_float<half_t>(random()));
          plain.values[at] = to_float(cache.values[at] = from_float<half_t>(random()));
        }
      }
    }
  }
  Attention attention(const Case& c) const {
    return {.scale = 0, .window = c.window, .slopes = c.alibi ? slopes.data() : nullptr};
  }
};

template <class Device>
std::vector<float> attend(Device device, const Case& c, Inputs& in, int first, int rows) {
  const auto width = static_cast<std::size_t>(c.heads.query * c.heads.dim);
  std::vector<float> out(static_cast<std::size_t>(rows) * width, -77.0f);
  device.attend(View<const float, 2>{in.q.data() + static_cast<std::size_t>(first) * width, rows, width}, c.heads,
                c.position + first, in.cache.layer(), view_of(out, rows), in.attention(c));
  return out;
}

template <class Device>
void check(int device) {
  for (const Case& c : cases) {
    CAPTURE(c.heads.dim, c.position, c.rows, c.window, Device().info().name);
    Inputs in(c);
    std::vector<float> expected(in.q.size());
    Reference().attend(view_of(in.q, c.rows), c.heads, c.position, in.plain.layer(), view_of(expected, c.rows),
                       in.attention(c));
    // Queries and weights are rounded to 11 bits: scores up to 10 are off by 10 * 2^-11, and so are their exponentials.
    const Device together({.device = device, .split_blocks = -1}), split({.device = device, .split_blocks = 1000});
    const auto whole = attend(together, c, in, 0, c.rows);
    CHECK(worst(whole, expected) < 0.02);
    const auto parts = attend(split, c, in, 0, c.rows);
    CHECK(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) == 0);
    std::vector<float> alone;
    for (int r = 0; r < c.rows; ++r) {
      const auto row = attend(r % 2 == 0 ? split : together, c, in, r, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    CHECK(std::memcmp(whole.data(), alone.data(), whole.size() * sizeof(float)) == 0);
  }
}

}  // namespace

TEST_CASE("attention with 32 lanes and mma.sync") { check<backend::Lanes32>(GENERATE(0, 1)); }
TEST_CASE("attention with 64 lanes and MFMA") { check<backend::Lanes64>(GENERATE(0, 1)); }
TEST_CASE("attention with 32 lanes and WMMA") { check<backend::LanesRdna>(GENERATE(0, 1)); }

TEST_CASE("heads wider than any kernel are refused") {
  const Case c{{1, 1, 300}, 10, 0, 1, 0, false};
  Inputs in(c);
  CHECK_THROWS_WITH(attend(backend::Lanes32{}, c, in, 0, 1), Catch::Contains("gpu.head-dim"));
}
