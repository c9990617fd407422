// Bit equality of products with four-bit weights: among rows, threads, chunks and instruction sets. And bounds: nothing
// is read or written after the end of any array.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/int4_products.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Int4Activations;
using backend::Isa;

namespace {

bool same_bits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

struct Shape {
  int out, in, group;
};

}  // namespace

TEST_CASE("a row's product does not depend on other rows, nor on the split of outputs") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const Shape shape : {Shape{100, 576, 64}, Shape{136, 256, 128}, Shape{40, 96, 32}}) {
    const Int4TestMatrix test(random_rows(shape.out, shape.in, shape.group, 1));
    const std::vector<float> x = gaussian(static_cast<std::size_t>(70 * shape.in), 2);
    for (const int terms : {1, 2}) {
      std::vector<float> alone;
      for (int r = 0; r < 70; ++r) {
        const std::vector<float> row = int4_product(set, terms, test.tiles(), x.data() + r * shape.in, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const int rows : {2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33, 70}) {
        for (const int slice : {128, 37, 16}) {
          const std::vector<float> together = int4_product(set, terms, test.tiles(), x.data(), rows, slice);
          CAPTURE(static_cast<int>(set), shape.in, terms, rows, slice);
          REQUIRE(same_bits(together.data(), alone.data(), together.size()));
        }
      }
    }
  }
}

TEST_CASE("all sets that fuse multiply and add give the same bits") {
  std::vector<DotSet> sets = available_dot_sets();
  if (sets.size() < 2) SUCCEED("only the portable set is here");
  for (std::size_t i = 2; i < sets.size(); ++i) {  // after portable and AVX2
    for (const Shape shape : {Shape{100, 576, 64}, Shape{136, 1024, 128}, Shape{40, 96, 32}, Shape{20, 70, 70}}) {
      const Int4TestMatrix test(random_rows(shape.out, shape.in, shape.group, 3));
      const std::vector<float> x = gaussian(static_cast<std::size_t>(13 * shape.in), 4);
      for (const int terms : {1, 2}) {
        for (const int rows : {1, 3, 8, 13}) {
          const std::vector<float> first = int4_product(sets[1], terms, test.tiles(), x.data(), rows);
          const std::vector<float> other = int4_product(sets[i], terms, test.tiles(), x.data(), rows);
          CAPTURE(static_cast<int>(sets[i]), shape.in, terms, rows);
          REQUIRE(same_bits(first.data(), other.data(), first.size()));
        }
      }
    }
  }
}

TEST_CASE("operations of backend::Cpu on four-bit weights: rows and threads change nothing") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const Int4Activations activations = GENERATE(Int4Activations::automatic, Int4Activations::bits8);
  const int hidden = 256, ffn = 320, rows = 19;
  const Heads heads{4, 2, 48};
  const int q_width = heads.query * heads.dim, context = 64;
  const Int4Packing layout{.layout = Int4Layout::packed_rows};
  const PackedLayer q(random_rows(q_width, hidden, 64, 1), layout), k(random_rows(96, hidden, 64, 2), layout),
      v(random_rows(96, hidden, 64, 3), layout), gate(random_rows(ffn, hidden, 64, 4), layout),
      up(random_rows(ffn, hidden, 64, 5), layout), down(random_rows(hidden, ffn, 64, 6), layout);
  std::vector<float> norm(hidden, 1.5f), frequency(24, 0.1f);
  const std::vector<float> input = gaussian(static_cast<std::size_t>(rows * hidden), 7);

  const auto run = [&](int threads, int at_once) {
    Cpu device{{.threads = threads, .isa = isa, .activations = activations}};
    const auto pack = [&](std::vector<LinearSource> sources) { return device.pack<AwqInt4<64>>(sources); };
    const auto qkv = pack({q.layer, k.layer, v.layer}), gate_up = pack({gate.layer, up.layer}),
               down_matrix = pack({down.layer});
    TestCache cache(heads, context, 0);
    std::vector<float> result;
    for (int first = 0; first < rows; first += at_once) {
      const int count = std::min(at_once, rows - first);
      std::vector<float> x(input.begin() + first * hidden, input.begin() + (first + count) * hidden);
      std::vector<float> queries(static_cast<std::size_t>(count * q_width)),
          gated(static_cast<std::size_t>(count * ffn)), logits(static_cast<std::size_t>(count * 2 * ffn));
      const View<float, 2> view{x.data(), count, hidden}, gated_view{gated.data(), count, ffn};
      const Norm rms{.weight = norm.data(), .epsilon = 1e-5f};
      const TestPlan plan(cache, count, first);
      auto step = device.begin(plan);
      step.qkv(view, rms, Linear{qkv}, Rope{.inverse_frequency = {frequency.data()}}, heads, cache.layer(),
               View<float, 2>{queries.data(), count, q_width});
      step.gated_mlp(view, rms, Linear{gate_up}, gated_view);
      step.project(gated_view, Linear{down_matrix}, view);
      step.logits(view, rms, Linear{gate_up}, View<float, 2>{logits.data(), count, 2 * ffn});
      for (const auto* part : {&queries, &x, &logits}) result.insert(result.end(), part->begin(), part->end());
    }
    const std::vector<float> kept = cache.all();
    result.insert(result.end(), kept.begin(), kept.end());
    return result;
  };
  const auto sorted_rows = [&](int threads, int at_once) {  // results are per chunk: reorder them
    std::vector<float> mixed = run(threads, at_once), ordered;
    const int widths[] = {q_width, hidden, 2 * ffn};
    std::vector<std::vector<float>> columns(3);
    std::size_t at = 0;
    for (int first = 0; first < rows; first += at_once) {
      for (std::size_t part = 0; part < 3; ++part) {
        const auto size = static_cast<std::size_t>(std::min(at_once, rows - first) * widths[part]);
        columns[part].insert(columns[part].end(), mixed.begin() + static_cast<std::ptrdiff_t>(at),
                             mixed.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
      }
    }
    for (const auto& column : columns) ordered.insert(ordered.end(), column.begin(), column.end());
    ordered.insert(ordered.end(), mixed.begin() + static_cast<std::ptrdiff_t>(at), mixed.end());
    return ordered;
  };
  const std::vector<float> alone = sorted_rows(1, 1);
  for (const auto& [threads, at_once] : {std::pair{1, 2}, {2, 1}, {1, 5}, {3, 8}, {2, 9}, {1, 19}, {2, 19}}) {
    const std::vector<float> other = sorted_rows(threads, at_once);
    CAPTURE(name_of(isa), threads, at_once);
    REQUIRE(other.size() == alone.size());
    REQUIRE(same_bits(alone.data(), other.data(), alone.size()));
  }
}

TEST_CASE("activations have 16 bits by default on every CPU, and 8 on request") {
  for (const Isa isa : backend::available_isas()) {
    const auto arithmetic = [isa](Int4Activations activations) {
      return Cpu{{.threads = 1, .isa = isa, .activations = activations}}.arithmetic();
    };
    CHECK(arithmetic(Int4Activations::automatic) == arithmetic(Int4Activations::bits16));
    CHECK(arithmetic(Int4Activations::automatic) != arithmetic(Int4Activations::bits8));
  }
}

TEST_CASE("the test detects a changed row") {
  const Int4TestMatrix test(random_rows(40, 128, 64, 1));
  std::vector<float> x = gaussian(2 * 128, 2);
  const std::vector<float> right = int4_product(DotSet::portable, 2, test.tiles(), x.data(), 2);
  x[128 + 5] = std::nextafter(x[128 + 5], 10.0f) * 1.01f;
  const std::vector<float> wrong = int4_product(DotSet::portable, 2, test.tiles(), x.data(), 2);
  CHECK(same_bits(right.data(), wrong.data(), 40));
  CHECK_FALSE(same_bits(right.data() + 40, wrong.data() + 40, 40));
}

TEST_CASE("weights, activations, packed rows, scratch and results are not exceeded") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const Shape shape : {Shape{1, 32, 32}, Shape{17, 100, 100}, Shape{40, 96, 32}, Shape{100, 192, 64},
                            Shape{64, 256, 128}, Shape{24, 33, 33}}) {
    const Int4TestMatrix test(random_rows(shape.out, shape.in, shape.group, 5));
    for (const int terms : {1, 2}) {
      for (const int rows : {1, 2, 5, 8, 9, 40}) {
        const std::vector<float> x = gaussian(static_cast<std::size_t>(rows * shape.in), 6);
        const std::vector<float> found = fenced_int4_product(set, terms, test.tiles(), x, rows);
        const std::vector<float> expected = int4_product(set, terms, test.tiles(), x.data(), rows);
        CAPTURE(static_cast<int>(set), shape.out, shape.in, terms, rows);
        REQUIRE(same_bits(found.data(), expected.data(), expected.size()));
      }
    }
  }
}
