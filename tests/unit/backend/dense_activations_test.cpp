// Rounding of activations in products with bfloat16 weights: none, or that of DenseActivations for a matrix unit and
// for dot products of pairs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
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

constexpr DenseActivations all_kinds[] = {DenseActivations::exact, DenseActivations::bf16x2, DenseActivations::bf16};

float nearest(float x) { return to_float(from_float<bfloat16_t>(x)); }

bool rounds(Isa isa, DenseActivations activations) {
  return backend::has_bf16_products(isa) && activations != DenseActivations::exact;
}

/// The rounded part of an activation, by definition.
float taken(float x, Isa isa, DenseActivations activations) {
  if (!rounds(isa, activations)) return x;
  const float high = nearest(x);
  return activations == DenseActivations::bf16 ? high : high + nearest(x - high);
}

std::vector<float> product(Cpu device, const Tensor& weight, const std::vector<float>& x, int rows) {
  const int out = static_cast<int>(weight.shape[0]), in = static_cast<int>(weight.shape[1]);
  const auto matrix = device.pack<Bf16>(std::vector<Tensor>{weight});
  std::vector<float> found(static_cast<std::size_t>(rows * out));
  device.begin({}).project(View<const float, 2>{x.data(), rows, in}, Linear{matrix},
                           View<float, 2>{found.data(), rows, out});
  return found;
}

}  // namespace

TEST_CASE("an activation is used as the sum of its nearest bfloat16 terms") {
  // Weights of 1 on the diagonal: the results are the activations as the kernels used them.
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  if (isa == Isa::avx512 && !backend::has_bf16_products(isa)) {
    WARN("this processor has no AVX512_BF16: dot products of bfloat16 pairs are not tested");
  }
  const int width = 64, rows = 67;
  std::vector<bfloat16_t> identity(width * width);
  for (std::size_t i = 0; i < width; ++i) identity[i * width + i] = from_float<bfloat16_t>(1);
  const Tensor tensor{"w",
                      DType::bf16,
                      {width, width},
                      reinterpret_cast<const std::byte*>(identity.data()),
                      identity.size() * sizeof(bfloat16_t)};
  std::vector<float> x = Random(31).vector(rows * width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 180) - 90);
  // Equally near to two bfloat16, of which the even one is used.
  x[0] = 1 + 0x1p-8f;
  x[1] = 1 + 0x3p-8f;
  x[2] = -1 - 0x1p-8f;
  for (const DenseActivations activations : all_kinds) {
    const std::vector<float> found =
        product(Cpu{{.threads = 1, .isa = isa, .dense_activations = activations}}, tensor, x, rows);
    CAPTURE(name_of(isa), static_cast<int>(activations));
    int rounded = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(found[i] == taken(x[i], isa, activations));
      rounded += found[i] != x[i];
      const float bound = activations == DenseActivations::bf16 ? 0x1p-8f : 0x1p-17f;
      REQUIRE(std::abs(found[i] - x[i]) <= bound * std::abs(x[i]));
    }
    // The test detects missing rounding.
    CHECK((rounded > static_cast<int>(x.size()) / 3) == rounds(isa, activations));
  }
}

TEST_CASE("a product is that of the rounded activations") {
  // A sum in float has an error of at most h * eps * S, S = sum |x_i w_i|, eps = 2^-24, if no product passes more than
  // h additions (Higham, Accuracy and Stability, 3.1 and 4.2): the number of products, and with two terms one that
  // joins two sums. Dot products of pairs add two products for every 32 and term, and then the 16 lanes by a tree of
  // four levels; their terms together are at most 1 + 2^-7 of an activation.
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const auto shape = GENERATE(values<std::pair<int, int>>({{37, 97}, {64, 576}, {130, 800}}));
  const int out = shape.first, in = shape.second;
  const RandomTensor<Bf16> weight(out, in, 5);
  std::vector<float> values(static_cast<std::size_t>(out * in));
  convert(weight.tensor, 0, out * in, values.data());
  for (const int rows : {1, 8, 9, 16, 17, 33, 70}) {
    const std::vector<float> x = Random(7).vector(static_cast<std::size_t>(rows * in));
    for (const DenseActivations activations : all_kinds) {
      const std::vector<float> found =
          product(Cpu{{.threads = 2, .isa = isa, .dense_activations = activations}}, weight.tensor, x, rows);
      CAPTURE(name_of(isa), static_cast<int>(activations), rows, out, in);
      const int terms = activations == DenseActivations::bf16 ? 1 : 2;
      const bool pairs = isa == Isa::avx512 && rounds(isa, activations);
      const double additions = pairs ? 1.01 * (2 * terms * ((in + 31) / 32) + 4) : in + 2;
      int unlike_whole = 0;  // outputs that differ from those of the exact activations
      int unlike_first = 0;  // and from those of their first terms
      for (int r = 0; r < rows; ++r) {
        for (int o = 0; o < out; ++o) {
          double sum = 0, whole = 0, first = 0, size = 0;
          for (int k = 0; k < in; ++k) {
            const float value = x[static_cast<std::size_t>(r * in + k)];
            const double w = double{values[static_cast<std::size_t>(o * in + k)]};
            sum += w * double{taken(value, isa, activations)};
            whole += w * double{value};
            first += w * double{nearest(value)};
            size += std::abs(w * double{value});
          }
          const double got = double{found[static_cast<std::size_t>(r * out + o)]};
          const double allowed = additions * 0x1p-24 * size;
          REQUIRE(std::abs(got - sum) <= allowed);
          unlike_whole += std::abs(got - whole) > allowed;
          unlike_first += std::abs(got - first) > allowed;
        }
      }
      if (!rounds(isa, activations)) continue;
      if (activations == DenseActivations::bf16) CHECK(unlike_whole > rows * out / 4);
      if (activations == DenseActivations::bf16x2) CHECK(unlike_first > rows * out / 4);
    }
  }
}

TEST_CASE("devices that round activations differently have different bits and different names") {
  std::vector<std::uint64_t> found;
  for (const Isa isa : backend::available_isas()) {
    for (const DenseActivations activations : all_kinds) {
      for (const auto bits : {backend::Int4Activations::bits16, backend::Int4Activations::bits8}) {
        const Cpu device{{.threads = 1, .isa = isa, .activations = bits, .dense_activations = activations}};
        const Cpu exact{{.threads = 1, .isa = isa, .activations = bits}};
        const bool same = !rounds(isa, activations);
        CHECK((device.arithmetic() == exact.arithmetic()) == same);
        if (!same || activations == DenseActivations::exact) found.push_back(device.arithmetic());
      }
    }
  }
  std::sort(found.begin(), found.end());
  CHECK(std::adjacent_find(found.begin(), found.end()) == found.end());
}

TEST_CASE(
    "with one term, too, an activation that is not finite affects only its row, and too large ones become infinite") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const int width = 40, rows = 17;
  const RandomTensor<Bf16> weight(33, width, 5);
  const std::vector<float> x = Random(7).vector(rows * width);
  std::vector<float> spoilt = x;
  spoilt[3 * width + 5] = std::nanf("");
  spoilt[9 * width + 5] = 3.4e38f;
  for (const DenseActivations activations : all_kinds) {
    const Cpu device{{.threads = 1, .isa = isa, .dense_activations = activations}};
    const std::vector<float> good = product(device, weight.tensor, x, rows);
    const std::vector<float> bad = product(device, weight.tensor, spoilt, rows);
    for (int r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r * 33);
      if (r == 3) {
        for (std::size_t o = 0; o < 33; ++o) CHECK(std::isnan(bad[at + o]));
      } else if (r == 9) {
        for (std::size_t o = 0; o < 33; ++o) CHECK(std::isfinite(bad[at + o]) != rounds(isa, activations));
      } else {
        CHECK(std::memcmp(&good[at], &bad[at], 33 * sizeof(float)) == 0);
      }
    }
  }
}
