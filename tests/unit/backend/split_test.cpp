// A backend with matrices split over ranks: the split of rows, the bits of every operation, the parts of a rank, and
// detection of a wrong gather or split.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/adapter_share.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/backend/split.hpp"
#include "slm/model/load.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Reference;
using backend::Split;
using ranks::run_threads;
using ranks::Threads;

static_assert(std::is_same_v<OnRanks<backend::Cpu, ranks::Alone>, backend::Cpu>);
static_assert(std::is_same_v<OnRanks<backend::Cpu, Threads>, Split<backend::Cpu, Threads>>);
static_assert(Backend<Split<Reference, Threads>>);

namespace {

constexpr std::int64_t in = 24, out = 88;  // halves of 44 rows: two tiles and a part of one
constexpr std::int64_t rows = 3;

struct Layer {
  std::vector<float> weight = numbers(out * in, 1), bias = numbers(out, 2), divisor = numbers(out, 3);
  Tensor tensor{"w", DType::f32, {out, in}, reinterpret_cast<const std::byte*>(weight.data()), weight.size() * 4};
  std::vector<PlanRow> places{{.token = 87}, {.token = 15, .position = 1}, {.token = 44, .position = 2}};
  std::vector<float> x = numbers(rows * in, 4);
};

/// Every operation with a split matrix except qkv, with the results one after another.
template <class B, class Matrix>
std::vector<float> all_operations(const Layer& layer, B device, const Matrix& weight) {
  auto step = device.begin({.rows = layer.places, .sequences = {}, .pages = {}, .outputs = {}, .draws = {}});
  const View<const float, 2> x{layer.x.data(), rows, in};
  const Linear linear{weight, layer.bias.data()};
  std::vector<float> results;
  const auto add = [&](std::int64_t width, auto&& compute) {
    std::vector<float> result = numbers(rows * width, 5);
    compute(View<float, 2>{result.data(), rows, width});
    results.insert(results.end(), result.begin(), result.end());
  };
  add(in, [&](auto y) { step.embed(weight, y); });
  add(in, [&](auto y) { step.embed_positions(weight, 40, y); });
  add(out, [&](auto y) { step.project(x, linear, y); });
  add(out / 2, [&](auto y) { step.gated_mlp(x, {}, linear, y, ActivationKind::silu); });
  add(out, [&](auto y) { step.mlp(x, {}, linear, ActivationKind::gelu_erf, layer.divisor.data(), y); });
  add(out, [&](auto y) { step.logits(x, {}, linear, y); });
  return results;
}

template <class C>
int ranks_that_differ(int size, const auto& spoil) {
  const Layer layer;
  const Tensor whole[] = {layer.tensor};
  Reference alone;
  const auto expected = all_operations(layer, alone, alone.pack<Fp32>(whole));
  std::atomic<int> wrong{0};
  run_threads(size, [&](const Threads& ranks) {
    Split<Reference, C> device(Reference{}, C(ranks));
    const Tensor parts[] = {rows_of(layer.tensor, 0, 30), rows_of(layer.tensor, 30, out - 30)};
    auto weight = device.template pack<Fp32>(parts);
    spoil(weight, layer, ranks.rank());
    const auto found = all_operations(layer, device, weight);
    wrong += std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) != 0;
  });
  return wrong;
}

const auto as_it_is = [](auto&, const Layer&, int) {};

/// Uses the other ranks' parts in the order of their arrival, ignoring their rank.
struct Unordered {
  explicit Unordered(Threads of) : ranks(std::move(of)) {}
  int rank() const { return ranks.rank(); }
  int size() const { return ranks.size(); }
  void broadcast(std::span<std::byte> bytes, int root) const { ranks.broadcast(bytes, root); }
  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes,
                  std::span<std::byte> all) const {
    ranks.all_gather(share, sizes, all);
    std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(sizes[0]), all.end());
  }
  void all_reduce(std::span<std::uint64_t> of, ranks::Reduction reduction) const { ranks.all_reduce(of, reduction); }
  void barrier() const { ranks.barrier(); }
  Unordered split(int color, int key) const { return Unordered(ranks.split(color, key)); }
  void fail(const std::string& reason) const { ranks.fail(reason); }
  void poll() const { ranks.poll(); }

  Threads ranks;
};

}  // namespace

TEST_CASE("rows are split at tiles, equally in both halves; every row has one holder") {
  for (const std::int64_t count : {1, 2, 15, 16, 31, 32, 33, 88, 97, 128, 4096, 50257, 151936}) {
    for (const int ranks : {1, 2, 3, 4, 7, 8}) {
      const RowCut cut(count, ranks);
      CAPTURE(count, ranks);
      CHECK(cut.parts * cut.width == count);
      CHECK(cut.first(0) == 0);
      CHECK(cut.first(ranks) == cut.width);
      std::int64_t most = 0, wrong = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        wrong +=
            cut.count(rank) < 0 || (cut.first(rank) % RowCut::tile_of_kernels != 0 && cut.first(rank) != cut.width);
        most = std::max(most, cut.count(rank));
        for (std::int64_t i = 0; i < cut.parts * cut.count(rank); i += 1 + i / 50) {
          const std::int64_t row = i / cut.count(rank) * cut.width + cut.first(rank) + i % cut.count(rank);
          const RowCut::Place place = cut.find(row);
          wrong += place.rank != rank || place.row != i;
        }
      }
      CHECK(wrong == 0);
      CHECK(most <= cut.width / ranks + RowCut::tile_of_kernels);
    }
  }
}

TEST_CASE("every operation gives the bits of the whole matrix, on any number of ranks") {
  for (const int size : {1, 2, 3, 4, 8}) CHECK(ranks_that_differ<Threads>(size, as_it_is) == 0);
}

TEST_CASE("the test detects parts in a wrong order, and rows of another rank") {
  CHECK(ranks_that_differ<Unordered>(1, as_it_is) == 0);
  CHECK(ranks_that_differ<Unordered>(3, as_it_is) == 3);
  const auto next_tile = [](auto& weight, const Layer& layer, int rank) {
    if (rank != 1) return;
    const Tensor other[] = {rows_of(layer.tensor, 0, weight.held.out)};  // of another tile
    weight.held = Reference{}.pack<Fp32>(other);
  };
  CHECK(ranks_that_differ<Threads>(2, next_tile) == 2);
}

TEST_CASE("each of p ranks holds 1/p of the weights, and a tile") {
  for (const char* folder : {"target", "target-int4"}) {
    const auto whole = load(demo_pair(folder), backend::Cpu{1}).info().step_bytes;
    for (const int size : {2, 4}) {
      std::vector<std::int64_t> held(static_cast<std::size_t>(size));
      run_threads(size, [&](const Threads& ranks) {
        const Split<backend::Cpu, Threads> device(backend::Cpu{1}, ranks);
        held[static_cast<std::size_t>(ranks.rank())] = load(demo_pair(folder), device).info().step_bytes;
      });
      std::int64_t total = 0;
      for (const std::int64_t bytes : held) {
        CAPTURE(folder, size, bytes, whole);
        CHECK(bytes < whole / size + whole / 20);
        total += bytes;
      }
      CHECK(std::abs(total - whole) < 4096);  // a row of the embedding, and rounding
    }
  }
}

TEST_CASE("of a transposed matrix a rank keeps only its own rows") {
  const std::vector<float> weight = numbers(64 * in, 1);
  auto turned = std::make_unique_for_overwrite<std::byte[]>(weight.size() * 4);
  std::memcpy(turned.get(), weight.data(), weight.size() * 4);
  Tensor tensor{"w", DType::f32, {64, in}, turned.get(), weight.size() * 4};
  tensor.owner = std::move(turned);
  const std::weak_ptr<const std::byte[]> whole = tensor.owner;
  run_threads(2, [&](const Threads& ranks) {
    if (ranks.rank() != 1) return;
    Tensor sources[] = {std::move(tensor)};
    const auto matrix = Split<Reference, Threads>(Reference{}, ranks).pack<Fp32>(sources);
    sources[0] = {};
    if (!whole.expired() || matrix.held.out != 32) throw Error("the whole is kept");
    if (*matrix.held.row(0) != weight[16 * in]) throw Error("other rows are kept");
  });
}

TEST_CASE("ranks split an adapter by the outputs of their rows, and each has all of its first half") {
  constexpr int rank = 3;
  const std::vector<float> down = numbers(rank * in, 6), up = numbers(rank * 50, 7);  // of outputs 20 to 69
  Adapter whole{.name = "some", .digest = 9, .begins = {0, 0, 1}};
  whole.changes.push_back({.down = reinterpret_cast<const std::byte*>(down.data()),
                           .up = reinterpret_cast<const std::byte*>(up.data()),
                           .scale = 2,
                           .rank = rank,
                           .in = in,
                           .first = 20,
                           .out = 50});
  for (const int size : {1, 2, 3, 5}) {
    const RowCut cut(out, size);
    std::vector<int> seen(out);
    for (int holder = 0; holder < size; ++holder) {
      const std::vector<RowRange> rows = cut.of(holder);
      const Adapter share = backend::share_of(
          whole,
          [&](int product) {
            CHECK(product < 2);
            return product == 1 ? rows : std::vector<RowRange>{};
          },
          [](int) { return std::optional<RowRange>{}; });
      CHECK(share.of(0).empty());
      std::vector<std::int64_t> outputs;  // computed by the holder, in its order
      for (const RowRange& range : rows) {
        for (std::int64_t o = range.first; o < range.last; ++o) outputs.push_back(o);
      }
      for (const LowRank& change : share.of(1)) {
        CHECK(std::memcmp(change.down, down.data(), down.size() * 4) == 0);
        const auto* columns = reinterpret_cast<const float*>(change.up);
        for (std::int64_t i = 0; i < change.out; ++i) {
          const std::int64_t o = outputs.at(static_cast<std::size_t>(change.first + i));
          ++seen[static_cast<std::size_t>(o)];
          for (int j = 0; j < rank; ++j)
            CHECK(columns[j * change.out + i] == up[static_cast<std::size_t>(j * 50 + o - 20)]);
        }
      }
    }
    for (int o = 0; o < out; ++o) CHECK(seen[static_cast<std::size_t>(o)] == (o >= 20 && o < 70));
  }
}
