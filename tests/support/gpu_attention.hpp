// Attention of backend::Gpu against Reference, and bit for bit against itself: one row alone, many rows, rows of other
// sequences, split along the sequence or not. The same bodies run on emulated and real devices.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "support/gpu_layer.hpp"

namespace slm::testing {

struct AttentionCase {
  Heads heads;
  int position, rows, window;
  bool alibi;
  int gap = 0;  // numbers between the queries of two rows
};
// Chunks of 64: inside one, across several, windows that begin inside a chunk, pages behind a window, more heads per
// key than a block has queries, every bucket of head dimensions, queries whose rows are apart.
inline const std::vector<AttentionCase> attention_cases{
    {{2, 1, 16}, 0, 1, 0, false},         {{2, 2, 10}, 60, 9, 0, false},   {{4, 1, 64}, 250, 20, 0, true},
    {{3, 3, 80}, 130, 3, 50, false},      {{6, 2, 96}, 190, 1, 0, true},   {{2, 1, 128}, 500, 7, 70, false},
    {{1, 1, 200}, 80, 5, 0, false},       {{40, 2, 16}, 62, 4, 0, false},  {{2, 1, 512}, 130, 3, 70, false},
    {{20, 1, 576}, 62, 4, 0, false, 576}, {{1, 1, 350}, 61, 5, 0, true, 3}};

/// Some rows of a sequence.
struct AttentionInputs {
  std::vector<float> q;
  FormatCache cache;

  AttentionInputs(const AttentionCase& c, KvFormat format, std::uint64_t seed)
      : cache(c.heads, c.position + c.rows, format) {
    Random random(seed);
    q = random.vector(static_cast<std::size_t>(c.rows * c.heads.query * c.heads.dim), 2);
    // Only written positions hold numbers; the others stay NaN, and positions behind the window are freed.
    cache.randomize(random, 0, c.position + c.rows, 0.9f);
    const int oldest = c.window == 0 ? 0 : c.position + 1 - c.window;
    for (int page = 0; page < oldest / page_positions; ++page) cache.release(page);
  }

  std::vector<float> rows_of(int first, int count, int width) const {
    const auto begin = q.begin() + std::ptrdiff_t{first} * width;
    return {begin, begin + std::ptrdiff_t{count} * width};
  }
};

/// Rows of one or more sequences in one step: rows[i] of texts[i] from first[i] on.
struct AttentionPart {
  AttentionInputs* text;
  int first, rows;
};

template <class Device>
std::vector<float> attend(Device device, const AttentionCase& c, const std::vector<float>& all_slopes,
                          const std::vector<AttentionPart>& parts) {
  const int width = c.heads.query * c.heads.dim, stride = width + c.gap;
  std::vector<float> queries;
  std::vector<DeviceCache<Device>> caches;
  TestPlan plan;
  plan.format = parts.front().text->cache.format();
  for (const AttentionPart& part : parts) {
    for (int r = part.first; r < part.first + part.rows; ++r) {
      const std::vector<float> own = part.text->rows_of(r, 1, width);
      queries.insert(queries.end(), own.begin(), own.end());
      queries.insert(queries.end(), static_cast<std::size_t>(c.gap), std::nanf(""));
    }
    caches.emplace_back(device, part.text->cache);
    plan.add(caches.back().table(), part.rows, c.position + part.first);
  }
  const int rows = static_cast<int>(queries.size()) / stride;
  OnDevice<Device> q(device, queries), slopes(device, all_slopes),
      out(device, std::vector<float>(static_cast<std::size_t>(rows * width), -77.0f));
  View<float, 2> queries_of_rows = q.rows(rows);
  queries_of_rows.extents[1] = width;
  device.begin(plan).attend(queries_of_rows, c.heads, caches.front().layer(), out.rows(rows),
                            {.scale = 0, .window = c.window, .slopes = c.alibi ? slopes.data() : nullptr});
  return out.read();
}

template <class Device>
void check_attention(int device, KvFormat format) {
  for (const AttentionCase& c : attention_cases) {
    CAPTURE(c.heads.query, c.heads.dim, c.position, c.rows, c.window, Device::name, device,
            std::string(name_of(format)));
    const int width = c.heads.query * c.heads.dim;
    AttentionInputs in(c, format, 31), other(c, format, 32);
    std::vector<float> slopes = Random(33).vector(static_cast<std::size_t>(c.heads.query), 0.1f);
    std::vector<float> expected(in.q.size());
    backend::Reference()
        .begin(in.cache.plan(c.rows, c.position))
        .attend(view_of(in.q, c.rows), c.heads, in.cache.layer(), view_of(expected, c.rows),
                {.scale = 0, .window = c.window, .slopes = c.alibi ? slopes.data() : nullptr});
    // Queries and weights are rounded to 11 bits, and so are products of codes and scales: scores up to 10 have an
    // error of 10 * 2^-11, and so have their exponentials.
    const Device together({.device = device, .split_blocks = -1}), split({.device = device, .split_blocks = 1000});
    const auto whole = attend(together, c, slopes, {{&in, 0, c.rows}});
    CHECK(worst(whole, expected) < 0.02);
    const auto same = [&](const std::vector<float>& found, int first) {
      return std::memcmp(whole.data(), found.data() + std::ptrdiff_t{first} * width, whole.size() * sizeof(float)) == 0;
    };
    CHECK(same(attend(split, c, slopes, {{&in, 0, c.rows}}), 0));
    std::vector<float> alone;
    for (int r = 0; r < c.rows; ++r) {
      const auto row = attend(r % 2 == 0 ? split : together, c, slopes, {{&in, r, 1}});
      alone.insert(alone.end(), row.begin(), row.end());
    }
    CHECK(same(alone, 0));
    for (const Device& one : {split, together}) {
      const std::vector<AttentionPart> parts{{&other, 0, 1}, {&in, 0, c.rows}, {&other, 0, c.rows}};
      CHECK(same(attend(one, c, slopes, parts), 1));
    }
  }
}

}  // namespace slm::testing
