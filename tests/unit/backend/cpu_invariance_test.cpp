// Bit equality: a row's result on backend::Cpu does not depend on other rows, on the threads, or on the chunks of a
// prompt. Lossless speculative decoding requires this.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::DenseActivations;
using backend::Isa;

namespace {

bool same_bits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

/// Runs `rows` rows in the given chunks on a new cache; returns the results of all rows in order.
template <class Format>
LayerResult in_pieces(Cpu device, RandomLayer<Format>& layer, const std::vector<float>& input, int position,
                      const std::vector<int>& pieces, TestCache cache) {
  LayerResult all;
  std::size_t first = 0;
  for (const int rows : pieces) {
    const std::size_t count = static_cast<std::size_t>(rows * layer.hidden);
    const std::vector<float> part(input.begin() + static_cast<std::ptrdiff_t>(first),
                                  input.begin() + static_cast<std::ptrdiff_t>(first + count));
    const LayerResult result = run_layer(device, layer, part, position + static_cast<int>(first) / layer.hidden, cache);
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.q, result.q);
    append(all.mixed, result.mixed);
    append(all.x, result.x);
    append(all.gated, result.gated);
    append(all.logits, result.logits);
    first += count;
  }
  return all;
}

void require_same(const LayerResult& a, const LayerResult& b) {
  const auto same = [](const std::vector<float>& left, const std::vector<float>& right) {
    return left.size() == right.size() && same_bits(left.data(), right.data(), left.size());
  };
  REQUIRE(same(a.q, b.q));
  REQUIRE(same(a.mixed, b.mixed));
  REQUIRE(same(a.x, b.x));
  REQUIRE(same(a.gated, b.gated));
  REQUIRE(same(a.logits, b.logits));
}

struct Shape {
  Heads heads;
  int hidden, ffn, vocab;
};
// Grouped queries; one query head more than a row block; sizes that are not a multiple of any vector; and one size
// large enough to be split among threads even for a single row.
const std::vector<Shape> shapes{
    {{4, 2, 16}, 64, 96, 97}, {{7, 1, 80}, 48, 61, 33}, {{3, 3, 2}, 131, 40, 64}, {{4, 2, 64}, 256, 333, 400}};

template <class Format>
void check_every_cut(const Shape& shape, Isa isa, DenseActivations activations = DenseActivations::exact) {
  const int position = 250;  // the rows cross a block boundary
  RandomLayer<Format> layer(shape.heads, shape.hidden, shape.ffn, shape.vocab, 640, 7);
  Random random(3);
  const int rows = 64;
  const std::vector<float> input = random.vector(static_cast<std::size_t>(rows * shape.hidden));
  TestCache cache(shape.heads, 640, 0);
  cache.randomize(random);

  const LayerResult alone = in_pieces(Cpu{{.threads = 1, .isa = isa, .dense_activations = activations}}, layer, input,
                                      position, std::vector<int>(64, 1), cache);
  for (const int threads : {1, 2, 3}) {
    Cpu device{{.threads = threads, .isa = isa, .dense_activations = activations}};
    CAPTURE(threads, Format::name, name_of(isa), static_cast<int>(activations), shape.hidden);
    for (int together = 1; together <= 17; ++together) {
      if (threads != 2 && together % 4 != 1) continue;
      std::vector<int> pieces;
      for (int left = rows; left > 0; left -= together) pieces.push_back(std::min(left, together));
      CAPTURE(together);
      require_same(alone, in_pieces(device, layer, input, position, pieces, cache));
    }
    require_same(alone, in_pieces(device, layer, input, position, {64}, cache));
    require_same(alone, in_pieces(device, layer, input, position, {1, 31, 2, 23, 7}, cache));
  }
}

}  // namespace

TEST_CASE("a row's result does not depend on other rows, threads or chunks") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const Shape shape = GENERATE(from_range(shapes));
  check_every_cut<Fp32>(shape, isa);
  check_every_cut<Bf16>(shape, isa);
  if (backend::has_bf16_products(isa)) {
    check_every_cut<Bf16>(shape, isa, DenseActivations::bf16x2);
    check_every_cut<Bf16>(shape, isa, DenseActivations::bf16);
  }
  check_every_cut<Fp16>(shape, isa);
}

TEST_CASE("attention over several chunks of positions does not depend on rows or threads") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const Heads heads{6, 2, 32};
  const int context = 1100, rows = 9;
  TestCache cache(heads, context, 0);
  Random random(5);
  cache.randomize(random, 2);
  const std::size_t width = static_cast<std::size_t>(heads.query * heads.dim);
  std::vector<float> q = random.vector(rows * width), together(q.size()), alone(q.size());
  for (const int position : {0, 60, 505, 1020, 1091}) {
    CAPTURE(position, name_of(isa));
    Cpu one{{.threads = 1, .isa = isa}}, three{{.threads = 3, .isa = isa}};
    three.begin(TestPlan(cache, rows, position))
        .attend(View<const float, 2>{q.data(), rows, width}, heads, cache.layer(),
                View<float, 2>{together.data(), rows, width});
    for (int r = 0; r < rows; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * width;
      one.begin(TestPlan(cache, 1, position + r))
          .attend(View<const float, 2>{q.data() + at, 1, width}, heads, cache.layer(),
                  View<float, 2>{alone.data() + at, 1, width});
    }
    REQUIRE(same_bits(alone.data(), together.data(), alone.size()));
  }
}

TEST_CASE("attention of any number of rows gives each row the same bits as alone") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const int most = 40, position = 40;  // the rows cross a block boundary, and fill tasks of 1 to 32 queries and more
  const std::vector<float> slopes{0.5f, 0.03f, 0.2f};
  for (const Heads heads : {Heads{1, 1, 24}, Heads{3, 1, 40}}) {
    for (const int window : {0, 50}) {
      const Attention attention{.scale = 0, .window = window, .slopes = window == 0 ? nullptr : slopes.data()};
      TestCache cache(heads, position + most, 0);
      Random random(8);
      cache.randomize(random, 2);
      const int width = heads.query * heads.dim;
      std::vector<float> q = random.vector(static_cast<std::size_t>(most * width), 2), alone(q.size()),
                         together(q.size());
      Cpu one{{.threads = 1, .isa = isa}};
      const auto attend = [&](int first, int rows, std::vector<float>& out) {
        one.begin(TestPlan(cache, rows, position + first))
            .attend(View<const float, 2>{q.data() + first * width, rows, width}, heads, cache.layer(),
                    View<float, 2>{out.data() + first * width, rows, width}, attention);
      };
      for (int r = 0; r < most; ++r) attend(r, 1, alone);
      for (int rows = 1; rows <= most; ++rows) {
        attend(0, rows, together);
        CAPTURE(name_of(isa), heads.query, window, rows);
        REQUIRE(same_bits(alone.data(), together.data(), static_cast<std::size_t>(rows * width)));
      }
    }
  }
}

TEST_CASE("positions after a row's own do not change its result") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const Shape shape = GENERATE(from_range(shapes));
  RandomLayer<Bf16> layer(shape.heads, shape.hidden, shape.ffn, shape.vocab, 640, 7);
  Random random(3);
  const std::vector<float> input = random.vector(static_cast<std::size_t>(10 * shape.hidden));
  TestCache clean(shape.heads, 640, 0), poisoned(shape.heads, 640);
  Cpu device{{.threads = 2, .isa = isa}};
  run_layer(device, layer, random.vector(static_cast<std::size_t>(600 * shape.hidden)), 0, clean);
  poisoned = clean;
  for (int h = 0; h < shape.heads.kv; ++h) {
    for (int j = 590; j < 640; ++j) {
      for (int d = 0; d < shape.heads.dim; ++d) {
        poisoned.key(h, j, d) = poisoned.value(h, j, d) = std::nanf("");
      }
    }
  }
  require_same(in_pieces(device, layer, input, 590, {10}, clean), in_pieces(device, layer, input, 590, {10}, poisoned));
  require_same(in_pieces(device, layer, input, 590, {10}, clean),
               in_pieces(device, layer, input, 590, {1, 1, 3, 5}, poisoned));
}

TEST_CASE("a row with NaN affects only itself") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const Shape& shape = shapes[0];
  RandomLayer<Bf16> layer(shape.heads, shape.hidden, shape.ffn, shape.vocab, 64, 7);
  std::vector<float> input = Random(3).vector(static_cast<std::size_t>(8 * shape.hidden)), spoilt = input;
  for (int i = 0; i < shape.hidden; ++i) spoilt[static_cast<std::size_t>(7 * shape.hidden + i)] = std::nanf("");
  Cpu device{{.threads = 2, .isa = isa}};
  TestCache cache(shape.heads, 64), other(shape.heads, 64);
  const LayerResult good = run_layer(device, layer, input, 0, cache);
  const LayerResult bad = run_layer(device, layer, spoilt, 0, other);
  REQUIRE(same_bits(good.logits.data(), bad.logits.data(), static_cast<std::size_t>(7 * shape.vocab)));
  for (int v = 0; v < shape.vocab; ++v) REQUIRE(std::isnan(bad.logits[static_cast<std::size_t>(7 * shape.vocab + v)]));
}

TEST_CASE("the test detects a sum that is split over k by the number of rows") {
  // A wrong kernel: one sum for a single row, two halves of k for many rows.
  Random random(11);
  const std::size_t in = 512;
  int differing = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<float> w = random.vector(in), x = random.vector(in);
    const auto dot = [&](std::size_t from, std::size_t to) {
      float sum = 0;
      for (std::size_t i = from; i < to; ++i) sum += w[i] * x[i];
      return sum;
    };
    const float single_row = dot(0, in), many_rows = dot(0, in / 2) + dot(in / 2, in);
    differing += !same_bits(&single_row, &many_rows, 1);
  }
  CHECK(differing > 0);
}
