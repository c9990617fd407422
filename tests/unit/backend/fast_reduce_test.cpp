// Matrices that ranks split by their inputs: conditions, the parts of a rank, and adding sums once.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "slm/backend/adapter_share.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/backend/split.hpp"
#include "slm/model/load.hpp"
#include "slm/ranks/threads.hpp"
#include "support/paths.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Reference;
using backend::Split;
using ranks::run_threads;
using ranks::Threads;

namespace {

using Device = Split<Reference, Threads>;

constexpr std::int64_t rows = 3, hidden = 40, ffn = 100;  // six tiles and a part of one

/// The hidden layer of three rows and its addition to them, without a gate and with one.
struct HiddenLayer {
  bool gated;
  std::int64_t wide = gated ? 2 * ffn : ffn;
  std::vector<float> up = numbers(wide * hidden, 1), up_bias = numbers(wide, 2), divisor = numbers(ffn, 3);
  std::vector<float> down = numbers(hidden * ffn, 4), bias = numbers(hidden, 5), x = numbers(rows * hidden, 6);
  std::vector<PlanRow> places = std::vector<PlanRow>(rows);

  template <class B>
  std::vector<float> run(B device, float biases = 1, double* widest = nullptr) const {
    const Tensor down_source[] = {tensor(down, hidden, ffn)}, up_source[] = {tensor(up, wide, hidden)};
    const WeightPlace down_place{.product = AdaptedProduct::down}, up_place{.product = AdaptedProduct::gate_up};
    const auto pack = [&](const auto& sources, [[maybe_unused]] const WeightPlace& place) {
      if constexpr (PacksByPlace<B, Fp32>) {
        return device.template pack<Fp32>(sources, place);
      } else {
        return device.template pack<Fp32>(sources);
      }
    };
    const auto down_weight = pack(down_source, down_place), up_weight = pack(up_source, up_place);
    std::vector<float> scaled = bias;
    for (float& value : scaled) value *= biases;
    auto step = device.begin({.rows = places, .sequences = {}, .pages = {}, .outputs = {}, .draws = {}});
    std::vector<float> found = x;
    const View<float, 2> out{found.data(), rows, hidden}, between = step.scratch(3, ffn);
    if (gated) {
      step.gated_mlp(out, {}, Linear{up_weight, up_bias.data()}, between);
    } else {
      step.mlp(out, {}, Linear{up_weight, up_bias.data()}, ActivationKind::gelu_erf, divisor.data(), between);
    }
    for (std::int64_t i = 0; widest != nullptr && i < rows * ffn; ++i)
      *widest = std::max(*widest, std::abs(double{between.data[i]}));
    step.project(between, Linear{down_weight, scaled.data()}, out);
    return found;
  }

  static Tensor tensor(const std::vector<float>& values, std::int64_t out, std::int64_t in) {
    return {"w", DType::f32, {out, in}, reinterpret_cast<const std::byte*>(values.data()), values.size() * 4};
  }

  /// The largest difference of sums in two orders: twice their terms * 2^-24 of their largest value.
  double tolerance() const {
    double widest = 0;  // of the hidden layer; weights, biases and x are at most 1
    run(Reference{}, 1, &widest);
    return 2 * (ffn + 2) * 0x1p-24 * (ffn * widest + 2);
  }
};

/// The largest difference of the ranks' results from this; and all ranks have the same bits.
double furthest(const HiddenLayer& layer, int size, const std::vector<float>& expected) {
  std::vector<std::vector<float>> found(static_cast<std::size_t>(size));
  run_threads(size, [&](const Threads& ranks) {
    found[static_cast<std::size_t>(ranks.rank())] = layer.run(Device(Reference{}, ranks, 1, true));
  });
  for (const auto& one : found) CHECK(one == found.front());
  double most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    most = std::max(most, std::abs(double{found.front()[i]} - double{expected[i]}));
  return most;
}

/// This device's form of a matrix [32, in] of the type after a hidden layer, and of one after `heads`.
bool is_cut(Device device, DType type, std::int64_t in, AdaptedProduct product, Heads heads = {}) {
  const std::size_t bytes = static_cast<std::size_t>(32 * in / values_of_block(type)) * bytes_of(type);
  const std::vector<std::byte> zeros(bytes);
  const LinearSource source[] = {Tensor{"w", type, {32, in}, zeros.data(), bytes}};
  return device.pack<AnyFormat>(source, {.product = product, .heads = heads}).inputs.width > 0;
}

}  // namespace

TEST_CASE("parts of the hidden layer on ranks add up to the result of one rank; biases are added once") {
  for (const bool gated : {false, true}) {
    const HiddenLayer layer{gated};
    const std::vector<float> expected = layer.run(Reference{});
    for (const int size : {2, 3, 4, 6, 8}) {
      CAPTURE(gated, size);
      CHECK(furthest(layer, size, expected) < layer.tolerance());
      CHECK(furthest(layer, size, layer.run(Reference{}, static_cast<float>(size))) > layer.tolerance());
      CHECK(furthest(layer, size, layer.run(Reference{}, 0)) > layer.tolerance());
    }
  }
}

TEST_CASE("a matrix is split by its inputs at the ends of blocks and heads, and each rank has a part") {
  for (const int size : {2, 3}) {
    run_threads(size, [&](const Threads& ranks) {
      const Device device(Reference{}, ranks, 1, true);
      const auto down = [&](DType type, std::int64_t in) { return is_cut(device, type, in, AdaptedProduct::down); };
      const auto behind = [&](DType type, Heads heads) {
        return is_cut(device, type, std::int64_t{heads.query} * heads.dim, AdaptedProduct::attention_out, heads);
      };
      int wrong = 0;
      wrong += !down(DType::bf16, 48) + down(DType::bf16, 16);
      wrong += !down(DType::q4_k, 768) + down(DType::q4_k, 256);
      wrong += !down(DType::q8_0, 96) + down(DType::q8_0, 32);
      wrong += !behind(DType::bf16, {.query = 3, .kv = 3, .dim = 20});
      wrong += !behind(DType::q4_0, {.query = 6, .kv = 1, .dim = 64}) +
               behind(DType::q4_0, {.query = 6, .kv = 6, .dim = 40});
      wrong += behind(DType::q6_k, {.query = 8, .kv = 8, .dim = 64}) != (size == 2);
      wrong += behind(DType::bf16, {.query = 1, .kv = 1, .dim = 64});
      wrong += is_cut(Device(Reference{}, ranks), DType::bf16, 48, AdaptedProduct::down);  // without the option
      if (wrong > 0) throw Error(text(wrong, " matrices"));
    });
  }
}

TEST_CASE("each of p ranks with partial sums holds 1/p of the weights, and a tile") {
  for (const char* folder : {"target", "target-int4"}) {
    const auto whole = load(demo_pair(folder), backend::Cpu{1}).info().step_bytes;
    for (const int size : {2, 4}) {
      std::vector<std::int64_t> held(static_cast<std::size_t>(size));
      run_threads(size, [&](const Threads& ranks) {
        const Split<backend::Cpu, Threads> device(backend::Cpu{1}, ranks, 1, true);
        held[static_cast<std::size_t>(ranks.rank())] = load(demo_pair(folder), device).info().step_bytes;
      });
      std::int64_t total = 0;
      for (const std::int64_t bytes : held) {
        CAPTURE(folder, size, bytes, whole);
        CHECK(bytes < whole / size + whole / 10);  // the hidden layer's ten groups are split by whole groups
        total += bytes;
      }
      CHECK(total > whole - 4096);                        // a row of the embedding is counted, rounded down
      CHECK(total < whole + 4096 + size * 12 * 16 * 64);  // tiles are whole lines: 16 of each matrix with this split
    }
  }
}

TEST_CASE("of an adapter after the hidden layer a rank has its inputs' columns and all outputs") {
  constexpr int rank = 3;
  const std::vector<float> down = numbers(rank * ffn, 7), up = numbers(rank * hidden, 8);
  Adapter whole{.name = "some", .digest = 9, .begins = {0, 1}};
  whole.changes.push_back({.down = reinterpret_cast<const std::byte*>(down.data()),
                           .up = reinterpret_cast<const std::byte*>(up.data()),
                           .scale = 2,
                           .rank = rank,
                           .in = ffn,
                           .first = 0,
                           .out = hidden});
  const Adapter share = backend::share_of(
      whole,
      [](int) {
        return std::vector{RowRange{0, 1 << 20}};
      },
      [](int) {
        return std::optional<RowRange>({48, 80});
      });
  REQUIRE(share.of(0).size() == 1);
  const LowRank& change = share.of(0).front();
  CHECK((change.in == 32 && change.first == 0 && change.out == hidden && change.rank == rank));
  const auto* columns = reinterpret_cast<const float*>(change.down);
  for (int j = 0; j < rank; ++j) {
    CHECK(std::equal(columns + j * 32, columns + (j + 1) * 32, down.begin() + j * ffn + 48));
    CHECK(std::equal(up.begin() + j * hidden, up.begin() + (j + 1) * hidden,
                     reinterpret_cast<const float*>(change.up) + j * hidden));
  }
}
