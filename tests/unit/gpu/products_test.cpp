// Every product of backend::Gpu on emulated devices against Reference: formats, epilogues, both forms, both wave
// widths, all three matrix layouts, both orders of threads.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "support/gpu_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Gpu;
using backend::GpuOptions;
using backend::Reference;

namespace {

struct Shape {
  Heads heads;
  int hidden, ffn;
};
// Whole tiles; odd everything; heads of 80 and 96; AMD-135M's hidden of 576 with heads that share keys.
const std::vector<Shape> shapes{
    {{2, 1, 32}, 64, 48}, {{3, 1, 10}, 37, 21}, {{2, 2, 80}, 160, 96}, {{1, 1, 96}, 96, 64}, {{9, 3, 64}, 576, 64}};

template <class Device, class Format>
struct Bench {
  Shape shape;
  int rows;
  RandomLayer<Format> layer;
  Device device;
  Reference reference;
  Random random{23};

  Bench(const Shape& s, int count, GpuOptions options = {})
      : shape(s), rows(count), layer(s.heads, s.hidden, s.ffn, 50, 256, 9), device(options) {}

  std::vector<float> rows_of(int width) { return random.vector(static_cast<std::size_t>(rows * width)); }
  std::vector<float> room(int width) const {
    return std::vector<float>(static_cast<std::size_t>(rows * width), -77.0f);
  }
  View<float, 2> view(std::vector<float>& values) const { return view_of(values, rows); }
  auto packs(const std::vector<Tensor>& tensors) {
    return std::pair{device.template pack<Format>(tensors), reference.template pack<Format>(tensors)};
  }
  Norm norm() const { return {.weight = layer.norm.data(), .epsilon = 1e-5f}; }
};

template <class Device, class Format>
void check_project(const Shape& shape, int rows, GpuOptions options) {
  Bench<Device, Format> bench(shape, rows, options);
  const auto [weight, plain] = bench.packs({bench.layer.o.tensor});
  std::vector<float> input = bench.rows_of(shape.heads.query * shape.heads.dim), found = bench.rows_of(shape.hidden),
                     expected = found;
  bench.device.project(bench.view(input), weight, bench.layer.o_bias.data(), bench.view(found));
  bench.reference.project(bench.view(input), plain, bench.layer.o_bias.data(), bench.view(expected));
  CHECK(worst(found, expected) < product_tolerance<Format>());
}

template <class Device, class Format>
void check_mlp(const Shape& shape, int rows, GpuOptions options) {
  Bench<Device, Format> bench(shape, rows, options);
  const auto [weight, plain] = bench.packs({bench.layer.gate.tensor, bench.layer.up.tensor});
  std::vector<float> x = bench.rows_of(shape.hidden), found = bench.room(shape.ffn), expected = found;
  Norm norm = bench.norm();
  bench.device.gated_mlp(bench.view(x), norm, weight, bench.layer.mlp_bias.data(), bench.view(found));
  bench.reference.gated_mlp(bench.view(x), norm, plain, bench.layer.mlp_bias.data(), bench.view(expected));
  CHECK(worst(found, expected) < 3 * product_tolerance<Format>());

  // Without a gate, with the other norm, a bias of it, and a divisor.
  const auto [up, plain_up] = bench.packs({bench.layer.up.tensor});
  const std::vector<float> norm_bias = bench.random.vector(static_cast<std::size_t>(shape.hidden));
  std::vector<float> divisor = bench.random.vector(static_cast<std::size_t>(shape.ffn));
  for (float& d : divisor) d = d < 0 ? d - 1 : d + 1;
  norm.kind = NormKind::layer;
  norm.bias = norm_bias.data();
  for (const ActivationKind kind : {ActivationKind::gelu_erf, ActivationKind::gelu_tanh, ActivationKind::relu}) {
    CAPTURE(name_of(kind));
    bench.device.mlp(bench.view(x), norm, up, bench.layer.mlp_bias.data(), kind, divisor.data(), bench.view(found));
    bench.reference.mlp(bench.view(x), norm, plain_up, bench.layer.mlp_bias.data(), kind, divisor.data(),
                        bench.view(expected));
    CHECK(worst(found, expected) < 3 * product_tolerance<Format>());
  }
}

/// The same over what was written; elsewhere both are zero.
double worst_written(const std::vector<float>& found, const std::vector<float>& expected) {
  std::vector<float> a, b;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == 0 && found[i] == 0) continue;
    a.push_back(found[i]);
    b.push_back(expected[i]);
  }
  return worst(a, b);
}

template <class Device, class Format>
void check_qkv(const Shape& shape, int rows, GpuOptions options) {
  Bench<Device, Format> bench(shape, rows, options);
  const Heads heads = shape.heads;
  const auto [weight, plain] = bench.packs({bench.layer.q.tensor, bench.layer.k.tensor, bench.layer.v.tensor});
  std::vector<float> x = bench.rows_of(shape.hidden), found = bench.room(heads.query * heads.dim), expected = found;
  HalfCache cache(heads, 128);
  TestCache plain_cache(heads, 128);
  const std::vector<float> head_norm = bench.random.vector(static_cast<std::size_t>(heads.query * heads.dim));
  const auto check = [&](int position, Rope rope, const QkvShaping& shaping) {
    std::fill(cache.keys.begin(), cache.keys.end(), half_t{});
    std::fill(cache.values.begin(), cache.values.end(), half_t{});
    std::fill(plain_cache.keys.begin(), plain_cache.keys.end(), 0.0f);
    std::fill(plain_cache.values.begin(), plain_cache.values.end(), 0.0f);
    bench.device.qkv(bench.view(x), bench.norm(), weight, bench.layer.qkv_bias.data(), rope, heads, position,
                     bench.view(found), cache.layer(), shaping);
    bench.reference.qkv(bench.view(x), bench.norm(), plain, bench.layer.qkv_bias.data(), rope, heads, position,
                        bench.view(expected), plain_cache.layer(), shaping);
    CHECK(worst(found, expected) < 2 * product_tolerance<Format>());
    CHECK(worst_written(floats(cache.keys), plain_cache.keys) < 2 * product_tolerance<Format>() + 0x1p-9);
    CHECK(worst_written(floats(cache.values), plain_cache.values) < 2 * product_tolerance<Format>() + 0x1p-9);
  };
  const Rope rope{.inverse_frequency = bench.layer.inverse_frequency.data()};
  check(17, rope, {});
  check(120, rope, {.clip = 0.5f});  // the rows run over the end of the ring
  check(3, {}, {});
  check(5, {.inverse_frequency = bench.layer.inverse_frequency.data(), .width = heads.dim / 4 * 2, .factor = 1.2f}, {});
  const Norm of_heads{.weight = head_norm.data(), .epsilon = 1e-5f, .bias = head_norm.data(), .kind = NormKind::layer};
  const Norm rms{.weight = head_norm.data(), .epsilon = 1e-5f};
  check(9, rope, {.clip = 0, .norm = QkNorm::per_head, .query = rms, .key = rms});
  check(9, rope, {.clip = 2, .norm = QkNorm::whole, .query = of_heads, .key = of_heads});
}

template <class Device, class Format>
void check_all(int device) {
  for (const Shape& shape : shapes) {
    for (const int rows : {1, 3, 8, 9, 35}) {
      const GpuOptions few{.device = device, .most_vector_rows = 1000}, many{.device = device, .most_vector_rows = 0};
      CAPTURE(Format::name, shape.heads.dim, shape.hidden, rows, Device().info().name);
      for (const GpuOptions& options : {few, many}) {
        if (rows != 3 && rows != 35 && shape.hidden > 100) continue;  // the large shapes once in each form
        CAPTURE(options.most_vector_rows);
        check_project<Device, Format>(shape, rows, options);
        check_mlp<Device, Format>(shape, rows, options);
        if (rows == 3 || rows == 9 || rows == 35) check_qkv<Device, Format>(shape, rows, options);
      }
    }
  }
}

}  // namespace

TEST_CASE("products with 32 lanes and mma.sync") {
  check_all<backend::Lanes32, Fp32>(0);
  check_all<backend::Lanes32, Fp16>(1);
  check_all<backend::Lanes32, Bf16>(0);
}

TEST_CASE("products with 64 lanes and MFMA") {
  check_all<backend::Lanes64, Fp32>(1);
  check_all<backend::Lanes64, Bf16>(0);
}

TEST_CASE("products with 32 lanes and WMMA") {
  check_all<backend::LanesRdna, Fp32>(0);
  check_all<backend::LanesRdna, Bf16>(1);
}
