// Attention with heads split over ranks: their assignment, the bits of queries, pages and outputs, a rank's part of the
// cache, and detection of wrong heads.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/kv_rows.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/backend/split.hpp"
#include "slm/formats/kv_format.hpp"
#include "slm/ranks/threads.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Reference;
using backend::Split;
using ranks::run_threads;
using ranks::Threads;

namespace {

constexpr int in = 32, layers = 2, texts = 2, text_rows = 3, first_position = 62;  // at the start of the second page

/// One layer's attention, after another's, for two growing sequences.
struct Case {
  Heads heads;
  QkNorm norm = QkNorm::none;
  int rotating = 0;
  bool alibi = false;
  KvFormat format = KvFormat::f32;

  std::int64_t width() const { return std::int64_t{heads.query} * heads.dim; }
  std::int64_t out() const { return std::int64_t{heads.query + 2 * heads.kv} * heads.dim; }
  KvPageShape shape() const {
    return {.layers = {0, 1},
            .of_layers = layers,
            .head_bytes = static_cast<std::size_t>(kv_head_bytes(format, heads.dim)),
            .heads = heads,
            .norm = norm};
  }
};

/// A filled page.
std::vector<std::byte> some_page(const Case& of, std::uint64_t seed) {
  std::vector<std::byte> page(of.shape().bytes());
  for (std::size_t head = 0; head < page.size() / of.shape().head_bytes; ++head) {
    for (int slot = 0; slot < page_positions; ++slot) {
      const std::vector<float> row = numbers(of.heads.dim, seed++);
      backend::KvRow{of.format, &page[head * of.shape().head_bytes], slot, of.heads.dim}.put(row.data());
    }
  }
  return page;
}

/// Outputs of attention and pages, one after another. spoil(weight, slopes) corrupts correct data.
template <class B, class Spoil>
std::vector<float> attend(const Case& of, B device, const WeightPlace& place, Spoil spoil) {
  const std::vector<float> weight = numbers(of.out() * in, 1), bias = numbers(of.out(), 2), x = numbers(6 * in, 3);
  const std::vector<float> norms = numbers(of.width(), 4);
  std::vector<float> slopes = numbers(of.heads.query, 5);
  const std::vector<float> frequencies{1, 0.5f, 0.1f, 0.02f, 0.01f, 0.003f, 0.002f, 0.001f};
  const auto part = [&](std::int64_t first, std::int64_t rows) {
    return Tensor{"w",
                  DType::f32,
                  {rows, in},
                  reinterpret_cast<const std::byte*>(&weight[first * in]),
                  static_cast<std::size_t>(rows * in) * 4};
  };
  const std::int64_t kv = std::int64_t{of.heads.kv} * of.heads.dim;
  const Tensor tensors[] = {part(0, of.width()), part(of.width(), kv), part(of.width() + kv, kv)};
  auto matrix = [&] {
    if constexpr (PacksByPlace<B, Fp32>) {
      return device.template pack<Fp32>(tensors, place);
    } else {
      return device.template pack<Fp32>(tensors);
    }
  }();
  spoil(matrix, slopes);

  const KvPageShape shape = of.shape();
  constexpr int pages = 2;  // of each sequence
  auto slab = [&] {
    if constexpr (SharesPages<B>) {
      return device.take_pages(shape, texts * pages);
    } else {
      return device.template allocate<std::byte>(texts * pages * shape.bytes());
    }
  }();
  std::vector<std::byte*> tables;
  for (std::size_t i = 0; i < texts * pages; ++i) {
    tables.push_back(slab.data() + i * shape.bytes());
    const std::vector<std::byte> page = some_page(of, 10000 * i);
    device.write(tables.back(), page.data(), page.size());
  }

  std::vector<PlanRow> rows;
  std::vector<PlanSequence> sequences;
  for (int text = 0; text < texts; ++text) {
    sequences.push_back({.first_row = text * text_rows, .rows = text_rows, .first_page = text * pages, .pages = pages});
    for (int r = 0; r < text_rows; ++r) rows.push_back({.position = first_position + r, .sequence = text});
  }
  const StepPlan plan{
      .rows = rows, .sequences = sequences, .pages = tables, .outputs = {}, .draws = {}, .format = of.format};
  const auto half = static_cast<std::int64_t>(shape.layer_bytes() / 2);
  const KvLayer layer{.kind = 0, .keys = 2 * half, .values = 3 * half};
  std::vector<float> q(6 * of.width()), mixed(q.size());
  const View<float, 2> mixed_rows{mixed.data(), 6, of.width()};
  const Norm head_norm{.weight = norms.data(), .epsilon = 1e-5f};
  {
    auto step = device.begin(plan);
    const Rope rope{.inverse_frequency = {of.rotating != 0 ? frequencies.data() : nullptr, nullptr},
                    .width = of.rotating,
                    .factor = 1};
    const View<const float, 2> inputs{x.data(), 6, in};
    step.qkv(inputs, {}, Linear{matrix, bias.data()}, rope, of.heads, layer, View<float, 2>{q.data(), 6, of.width()},
             {.clip = 3, .norm = of.norm, .query = head_norm, .key = head_norm});
    step.attend(View<const float, 2>{q.data(), 6, of.width()}, of.heads, layer, mixed_rows,
                {.window = 40, .slopes = of.alibi ? slopes.data() : nullptr});
  }
  std::vector<float> all = mixed;
  std::vector<std::byte> contents(shape.bytes());
  for (std::byte* const page : tables) {
    device.read(contents.data(), page, contents.size());
    const std::size_t end = all.size();
    all.resize(end + contents.size() / 4);
    std::memcpy(all.data() + end, contents.data(), contents.size());
  }
  return all;
}

const auto as_it_is = [](auto&, std::vector<float>&) {};

template <class B>
int ranks_that_differ(const Case& of, int size, const auto& device, const auto& spoil) {
  const std::vector<float> expected = attend(of, B{device()}, {}, as_it_is);
  const WeightPlace place{.product = AdaptedProduct::qkv, .layer = 1, .layers = 2, .heads = of.heads, .norm = of.norm};
  std::atomic<int> wrong{0};
  run_threads(size, [&](const Threads& ranks) {
    const auto found =
        attend(of, Split<B, Threads>(B{device()}, ranks), place, [&](auto& matrix, std::vector<float>& slopes) {
          if (ranks.rank() == 1) spoil(matrix, slopes);
        });
    wrong += found.size() != expected.size() ||
             std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) != 0;
  });
  return wrong;
}

const auto reference = [] { return Reference{}; };
const auto cpu = [] { return backend::CpuOptions{.threads = 1}; };

const std::vector<Case> cases{
    {.heads = {8, 8, 16}, .rotating = 16},
    {.heads = {8, 2, 16}, .rotating = 16, .format = KvFormat::f16},
    {.heads = {6, 3, 8}, .norm = QkNorm::per_head, .rotating = 8, .format = KvFormat::int8},
    {.heads = {5, 5, 20}, .rotating = 8, .alibi = true, .format = KvFormat::bf16},
    {.heads = {9, 1, 16}, .alibi = true, .format = KvFormat::int8},
    {.heads = {12, 4, 8}, .rotating = 8, .format = KvFormat::int8},
    {.heads = {4, 2, 16}, .norm = QkNorm::whole, .rotating = 16},
};

/// The allocations of a rank.
class Counting : public Reference {
 public:
  explicit Counting(std::size_t* bytes) : bytes_(bytes) {}

  template <class T>
  Buffer<T> allocate(std::size_t count) {
    *bytes_ += count * sizeof(T);
    return Reference::allocate<T>(count);
  }

 private:
  std::size_t* bytes_;
};

}  // namespace

TEST_CASE("every head has a rank with its keys and values, and ranks have similar numbers of heads") {
  for (const auto& [query, kv] :
       {std::pair{1, 1}, {3, 3}, {4, 1}, {6, 2}, {8, 2}, {9, 3}, {12, 4}, {32, 8}, {71, 1}, {7, 7}}) {
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 16}) {
      const Heads heads{query, kv, 10};
      const HeadCut cut(heads, QkNorm::per_head, ranks);
      CAPTURE(query, kv, ranks);
      CHECK(cut.whole == (ranks > query));
      if (cut.whole) continue;
      const int group = query / kv;
      int next = 0, wrong = 0, most = 0, least = query;
      std::vector<int> held(static_cast<std::size_t>(kv));
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadRange q = cut.queries_of(rank), keys = cut.kv_of(rank);
        const Heads own = cut.of(rank);
        wrong += q.first != next || own.query != q.count() || own.kv != keys.count() || own.dim != 10;
        next = q.last;
        for (int h = q.first; h < q.last; ++h)  // as an operation finds them
          wrong += own.query % own.kv != 0 || keys.first + (h - q.first) / (own.query / own.kv) != h / group;
        for (int h = keys.first; h < keys.last; ++h) ++held[static_cast<std::size_t>(h)];
        for (const int parts : {1, 2, 3}) {
          std::int64_t rows = 0, behind = 0;
          for (const RowRange& range : cut.rows_of(rank, parts)) {
            wrong += range.first < behind || range.count() <= 0 || range.last > 10 * (query + (parts - 1) * kv);
            behind = range.last;
            rows += range.count();
          }
          wrong += rows != 10 * (own.query + (parts - 1) * own.kv);
        }
        most = std::max(most, own.query);
        if (own.query > 0) least = std::min(least, own.query);
      }
      CHECK(next == query);
      CHECK(wrong == 0);
      CHECK(most - least <= (ranks <= kv ? group : 1));
      CHECK(*std::min_element(held.begin(), held.end()) == std::max(1, ranks / kv));
      CHECK(*std::max_element(held.begin(), held.end()) == std::max(1, ranks / kv));
    }
  }
  CHECK(HeadCut({8, 8, 16}, QkNorm::whole, 2).whole);
  CHECK(HeadCut({8, 8, 16}, QkNorm::whole, 2).of(1).query == 8);
}

TEST_CASE("queries, pages and outputs of attention have the bits of one rank, on any number of ranks") {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const int size : {1, 2, 3, 4, 8}) {
      CAPTURE(i, size);
      CHECK(ranks_that_differ<Reference>(cases[i], size, reference, as_it_is) == 0);
      CHECK(ranks_that_differ<Cpu>(cases[i], size, cpu, as_it_is) == 0);
    }
  }
}

TEST_CASE("the test detects another rank's keys and values, and another head's slope") {
  const Case of{.heads = {8, 8, 16}, .rotating = 16, .alibi = true};
  const auto others_keys = [](auto& matrix, auto&) { matrix.heads.sharing = 2; };
  const auto others_slopes = [](auto&, std::vector<float>& slopes) { std::swap(slopes[0], slopes[4]); };
  CHECK(ranks_that_differ<Reference>(of, 2, reference, as_it_is) == 0);
  CHECK(ranks_that_differ<Reference>(of, 2, reference, others_keys) == 2);
  CHECK(ranks_that_differ<Reference>(of, 2, reference, others_slopes) == 2);
}

TEST_CASE("each of p ranks holds 1/p of the cache, and heads with several readers are on each of them") {
  for (const auto& [heads, ranks, shares] : {std::tuple{Heads{8, 8, 16}, 4, std::vector{2, 2, 2, 2}},
                                             {Heads{8, 2, 16}, 4, std::vector{1, 1, 1, 1}},
                                             {Heads{7, 7, 16}, 3, std::vector{2, 2, 3}},
                                             {Heads{8, 2, 16}, 3, std::vector{1, 1, 0}},
                                             {Heads{8, 2, 16}, 9, std::vector(9, 2)}}) {
    const Case of{.heads = heads};
    const std::size_t of_a_head = of.shape().bytes() / static_cast<std::size_t>(heads.kv);
    std::vector<std::size_t> held(static_cast<std::size_t>(ranks));
    run_threads(ranks, [&, heads = heads](const Threads& threads) {
      Split<Counting, Threads> device(Counting(&held[static_cast<std::size_t>(threads.rank())]), threads);
      device.take_pages(Case{.heads = heads}.shape(), 5);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      CHECK(held[at] == 5 * of_a_head * static_cast<std::size_t>(shares[at]));
    }
  }
}
