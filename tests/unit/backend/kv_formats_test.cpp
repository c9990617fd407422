// Formats of the KV cache: the error of a row in each, and attention on backend::Cpu, with every instruction set,
// compared with backend::Reference from the same pages.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/errors.hpp"
#include "support/format_cache.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Isa;
using backend::KvRow;
using backend::Reference;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> stored_and_read(KvFormat format, const std::vector<float>& row) {
  const int dim = static_cast<int>(row.size()), slot = 5;
  std::vector<std::byte> head(static_cast<std::size_t>(kv_head_bytes(format, dim)), std::byte{0x5a});
  const std::vector<std::byte> before = head;
  KvRow{format, head.data(), slot, dim}.put(row.data());
  std::vector<float> found(row.size()), neighbour(row.size()), untouched(row.size());
  KvRow{format, head.data(), slot, dim}.get(found.data());
  for (int other = 0; other < page_positions; ++other) {
    if (other == slot) continue;
    KvRow{format, head.data(), other, dim}.get(neighbour.data());
    KvRow{format, const_cast<std::byte*>(before.data()), other, dim}.get(untouched.data());
    REQUIRE(std::memcmp(neighbour.data(), untouched.data(), row.size() * sizeof(float)) == 0);
  }
  return found;
}

float largest_of(const std::vector<float>& row) {
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The largest difference; NaN if anything is NaN.
double worst(const std::vector<float>& found, const std::vector<float>& expected) {
  double largest = 0;
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(double{found[i]} - double{expected[i]});
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> attend(const auto& device, FormatCache& cache, std::vector<float> q, int position,
                          const Attention& attention) {
  const int width = cache.heads().query * cache.heads().dim, rows = static_cast<int>(q.size()) / width;
  std::vector<float> out(q.size());
  auto copy = device;
  copy.begin(cache.plan(rows, position))
      .attend(View<const float, 2>{q.data(), rows, width}, cache.heads(), cache.layer(),
              View<float, 2>{out.data(), rows, width}, attention);
  return out;
}

}  // namespace

TEST_CASE("a row of the cache is read as written, within the error of its format, and no other row changes") {
  Random random(3);
  for (const int dim : {1, 2, 10, 64, 80, 128, 200}) {
    for (const float size : {1e-20f, 0.01f, 1.0f, 300.0f}) {
      const std::vector<float> row = random.vector(static_cast<std::size_t>(dim), size);
      CAPTURE(dim, size);
      CHECK(same_bits(stored_and_read(KvFormat::f32, row), row));
      const auto bf16 = stored_and_read(KvFormat::bf16, row), f16 = stored_and_read(KvFormat::f16, row),
                 int8 = stored_and_read(KvFormat::int8, row);
      const double largest = double{largest_of(row)};
      for (std::size_t i = 0; i < row.size(); ++i) {
        CHECK(std::abs(double{bf16[i]} - double{row[i]}) <= std::abs(double{row[i]}) * 0x1p-8);
        CHECK(std::abs(double{f16[i]} - double{row[i]}) <= std::abs(double{row[i]}) * 0x1p-11 + 0x1p-25);
        CHECK(std::abs(double{int8[i]} - double{row[i]}) <= largest / 254 * (1 + 1e-4));
      }
    }
  }
}

TEST_CASE("zero, tiny, huge, infinite and NaN rows have a defined value in every format") {
  for (const KvFormat format : kv_formats) {
    CAPTURE(std::string(name_of(format)));
    CHECK(stored_and_read(format, {0, -0.0f, 0}) == std::vector<float>{0, 0, 0});
    CHECK(std::abs(stored_and_read(format, {1e-40f, -1e-40f})[0]) <= 1e-30f);
    for (const float value : {infinity, -infinity, std::nanf("")}) {
      const std::vector<float> found = stored_and_read(format, {1, value, 2});
      if (format == KvFormat::f16 && !std::isnan(value)) {
        CHECK(std::abs(found[1]) == 65504);  // as large as a half can be
      } else {
        CHECK_FALSE(std::isfinite(found[1]));
      }
      if (format == KvFormat::int8) CHECK((std::isnan(found[0]) && std::isnan(found[2])));
    }
    const float most = std::numeric_limits<float>::max() / 2;
    if (format == KvFormat::int8) CHECK(stored_and_read(format, {most, -most / 2})[0] == Approx(most).epsilon(1e-5));
  }
}

TEST_CASE("formats of the cache have names, and every other name is rejected") {
  for (const KvFormat format : kv_formats) CHECK(kv_format_named(name_of(format)) == format);
  for (const std::string& name : std::vector<std::string>{"", "F32", "f32 ", "int4", std::string("f32\0", 4),
                                                          std::string(100000, 'x'), "\x1b[31m"}) {
    CHECK(error_id([&] { kv_format_named(name); }) == "cache.unknown-format");
  }
}

TEST_CASE("attention reads every format like the reference, with the same bits alone and in a batch") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const KvFormat format = GENERATE(from_range(kv_formats));
  Random random(5);
  for (const Heads heads : {Heads{6, 2, 20}, Heads{4, 1, 64}, Heads{3, 3, 80}, Heads{2, 1, 7}}) {
    const int rows = 9, context = 700, width = heads.query * heads.dim;
    FormatCache cache(heads, context, format);
    cache.randomize(random, 0, context, 2);
    const std::vector<float> q = random.vector(static_cast<std::size_t>(rows * width), 2),
                             slopes = random.vector(static_cast<std::size_t>(heads.query), 0.3f);
    for (const int window : {0, 7, 100, 600}) {
      for (const int position : {0, 60, 505, 690}) {
        const Attention attention{.scale = 0, .window = window, .slopes = window == 100 ? slopes.data() : nullptr};
        FormatCache seen = cache;  // values that no row sees are absent
        seen.forget(0, window == 0 ? 0 : std::max(0, position + 1 - window));
        seen.forget(position + rows, context);
        const Cpu one{{.threads = 1, .isa = isa}}, three{{.threads = 3, .isa = isa}};
        const auto together = attend(three, seen, q, position, attention),
                   expected = attend(Reference{}, seen, q, position, attention);
        CAPTURE(name_of(isa), std::string(name_of(format)), heads.dim, window, position);
        // Sums of at most 600 products of values up to 2: see cpu_kinds_test.cpp.
        REQUIRE(worst(together, expected) <= 4e-5);
        std::vector<float> alone;
        for (int r = 0; r < rows; ++r) {
          const std::vector<float> row(q.begin() + std::ptrdiff_t{r} * width,
                                       q.begin() + std::ptrdiff_t{r + 1} * width);
          const auto found = attend(one, seen, row, position + r, attention);
          alone.insert(alone.end(), found.begin(), found.end());
        }
        REQUIRE(same_bits(alone, together));
      }
    }
  }
}

TEST_CASE("the test detects the scale of the adjacent position") {
  const Heads heads{4, 2, 32};
  Random random(6);
  FormatCache cache(heads, 200, KvFormat::int8);
  cache.randomize(random, 0, 192, 2);
  FormatCache wrong = cache;
  const std::vector<float> q = random.vector(static_cast<std::size_t>(heads.query * heads.dim), 2);
  for (const bool keys : {true, false}) {
    wrong = cache;
    wrong.shift_scales(keys);
    CHECK(worst(attend(Cpu{1}, wrong, q, 150, {}), attend(Reference{}, cache, q, 150, {})) > 1e-3);
  }
  CHECK(worst(attend(Cpu{1}, cache, q, 150, {}), attend(Reference{}, cache, q, 150, {})) < 4e-5);
}

TEST_CASE("qkv writes the reference's values, and the same bytes for a row alone and in a batch") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const KvFormat format = GENERATE(from_range(kv_formats));
  const Heads heads{4, 2, 32};
  const int hidden = 64, rows = 7, position = 60, context = 128;
  RandomLayer<Bf16> layer(heads, hidden, 8, 8, 64, 5);
  const std::vector<Tensor> tensors{layer.q.tensor, layer.k.tensor, layer.v.tensor};
  Cpu cpu{{.threads = 2, .isa = isa}};
  Reference reference;
  const auto weight = cpu.pack<Bf16>(tensors);
  const auto plain = reference.pack<Bf16>(tensors);
  const Norm norm{.weight = layer.norm.data(), .epsilon = 1e-5f};
  std::vector<float> x = Random(9).vector(static_cast<std::size_t>(rows * hidden));
  for (const int rotating : {0, 8}) {  // all dimensions, some: in one pass, in two
    const Rope rope{.inverse_frequency = {layer.inverse_frequency.data()}, .width = rotating};
    FormatCache found(heads, context, format), expected = found, alone = found;
    std::vector<float> q(static_cast<std::size_t>(rows * heads.query * heads.dim));
    const auto run = [&](auto& device, FormatCache& cache, const auto& matrix, int first, int count) {
      device.begin(cache.plan(count, position + first))
          .qkv(View<const float, 2>{x.data() + first * hidden, count, hidden}, norm,
               Linear{matrix, layer.qkv_bias.data()}, rope, heads, cache.layer(),
               View<float, 2>{q.data(), count, heads.query * heads.dim});
    };
    run(cpu, found, weight, 0, rows);
    run(reference, expected, plain, 0, rows);
    for (int r = 0; r < rows; ++r) run(cpu, alone, weight, r, 1);
    CAPTURE(name_of(isa), std::string(name_of(format)), rotating);
    REQUIRE(found.bytes() == alone.bytes());
    for (const bool keys : {true, false}) {
      for (int h = 0; h < heads.kv; ++h) {
        for (int p = position; p < position + rows; ++p) {
          const auto row = found.row(keys, h, p), plain_row = expected.row(keys, h, p);
          // Values close to a tie may be rounded to the other side.
          const double step = format == KvFormat::int8  ? largest_of(plain_row) / 127.0
                              : format == KvFormat::f32 ? 0
                                                        : largest_of(plain_row) * 0x1p-8;
          REQUIRE(worst(row, plain_row) <= 1e-4 + step);
        }
      }
    }
  }
}
