// Attention of backend::Gpu against Reference, and bit for bit against itself: one row alone, many rows, split along
// the sequence or not. The same bodies run on emulated devices and on real ones.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "support/gpu_layer.hpp"

namespace slm::testing {

struct AttentionCase {
  Heads heads;
  int capacity, position, rows, window;
  bool alibi;
};
// Chunks of 64: inside one, across several, windows that begin inside a chunk, rings, every bucket of head dimensions.
inline const std::vector<AttentionCase> attention_cases{
    {{2, 1, 16}, 100, 0, 1, 0, false},    {{2, 2, 10}, 100, 60, 9, 0, false}, {{4, 1, 64}, 300, 250, 20, 0, true},
    {{3, 3, 80}, 200, 130, 3, 50, false}, {{6, 2, 96}, 200, 190, 1, 0, true}, {{2, 1, 128}, 128, 500, 7, 70, false},
    {{1, 1, 200}, 90, 80, 5, 0, false}};

struct AttentionInputs {
  std::vector<float> q, slopes;
  std::vector<half_t> keys, values;
  TestCache plain;

  explicit AttentionInputs(const AttentionCase& c)
      : keys(static_cast<std::size_t>(c.heads.kv * c.capacity * c.heads.dim), half_t{0x7e00}),
        values(keys),
        plain(c.heads, c.capacity) {
    Random random(31);
    q = random.vector(static_cast<std::size_t>(c.rows * c.heads.query * c.heads.dim), 2);
    slopes = random.vector(static_cast<std::size_t>(c.heads.query), 0.1f);
    // Only what has been written by now holds numbers; the rest stays NaN.
    const int last = c.position + c.rows - 1;
    for (int h = 0; h < c.heads.kv; ++h) {
      for (int p = std::max(0, last + 1 - c.capacity); p <= last; ++p) {
        for (int d = 0; d < c.heads.dim; ++d) {
          const auto at = static_cast<std::size_t>((h * c.capacity + p % c.capacity) * c.heads.dim + d);
          plain.keys[at] = to_float(keys[at] = from_float<half_t>(random()));
          plain.values[at] = to_float(values[at] = from_float<half_t>(random()));
        }
      }
    }
  }
  static Attention attention(const AttentionCase& c, const float* of) {
    return {.scale = 0, .window = c.window, .slopes = c.alibi ? of : nullptr};
  }
};

template <class Device>
std::vector<float> attend(Device device, const AttentionCase& c, const AttentionInputs& in, int first, int rows) {
  const int width = c.heads.query * c.heads.dim;
  OnDevice<Device> q(device, in.q), slopes(device, in.slopes),
      out(device, std::vector<float>(static_cast<std::size_t>(rows * width), -77.0f));
  DeviceCache<Device> cache(device, c.heads, c.capacity, in.keys, in.values);
  device.attend(q.rows(first, rows, width), c.heads, c.position + first, cache.layer(), out.rows(rows),
                in.attention(c, slopes.data()));
  return out.read();
}

template <class Device>
void check_attention(int device) {
  for (const AttentionCase& c : attention_cases) {
    CAPTURE(c.heads.dim, c.position, c.rows, c.window, Device::name, device);
    AttentionInputs in(c);
    std::vector<float> expected(in.q.size());
    backend::Reference().attend(view_of(in.q, c.rows), c.heads, c.position, in.plain.layer(), view_of(expected, c.rows),
                                in.attention(c, in.slopes.data()));
    // Queries and weights are rounded to 11 bits: scores up to 10 are off by 10 * 2^-11, and so are their exponentials.
    const Device together({.device = device, .split_blocks = -1}), split({.device = device, .split_blocks = 1000});
    const auto whole = attend(together, c, in, 0, c.rows);
    CHECK(worst(whole, expected) < 0.02);
    const auto same = [&](const std::vector<float>& other) {
      return std::memcmp(whole.data(), other.data(), whole.size() * sizeof(float)) == 0;
    };
    CHECK(same(attend(split, c, in, 0, c.rows)));
    std::vector<float> alone;
    for (int r = 0; r < c.rows; ++r) {
      const auto row = attend(r % 2 == 0 ? split : together, c, in, r, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    CHECK(same(alone));
  }
}

}  // namespace slm::testing
