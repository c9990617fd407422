// The operations of residual streams and of MLPs that drop gates against their formulas in double. A row has the same
// bits alone and among others.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr std::int64_t widths[] = {1, 15, 16, 33, 64, 65, 200};

std::vector<float> randoms(std::uint64_t seed, std::int64_t count) {
  Random random(seed);
  return random.vector(static_cast<std::size_t>(count));
}

View<float, 2> rows_of(std::vector<float>& data, std::int64_t rows) {
  return {data.data(), rows, static_cast<std::int64_t>(data.size()) / rows};
}

double rms(const float* x, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += double{x[i]} * x[i];
  return std::sqrt(sum / static_cast<double>(width));
}

double gelu(double z) {
  return 0.5 * z * (1 + std::tanh(std::sqrt(2 / 3.14159265358979324) * (z + 0.044715 * z * z * z)));
}

}  // namespace

TEMPLATE_TEST_CASE("streams are mixed by weights of each row, and corrected by a change", "", backend::Reference,
                   backend::Cpu) {
  TestType device{};
  for (const std::int64_t width : widths) {
    for (const std::int64_t count : {2, 3, 4, 16}) {
      const std::int64_t rows = 5;
      CAPTURE(width, count);
      const std::vector<float> streams = randoms(1, count * rows * width);
      std::vector<float> weights = randoms(2, rows * count * count), factors = randoms(3, rows * count);
      std::vector<float> x = randoms(4, rows * width), mixed = streams, corrected = streams;
      const View<float, 2> all{mixed.data(), count * rows, width}, changed{corrected.data(), count * rows, width};
      device.begin({}).mix_streams(all, rows_of(weights, rows));
      device.begin({}).correct_streams(changed, rows_of(factors, rows), rows_of(x, rows));
      const auto at = [&](std::int64_t stream, std::int64_t row, std::int64_t i) {
        return static_cast<std::size_t>((stream * rows + row) * width + i);
      };
      double worst = 0;
      for (std::int64_t j = 0; j < count; ++j) {
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t i = 0; i < width; ++i) {
            double sum = streams[at(j, r, i)];
            for (std::int64_t k = 0; k < count; ++k)
              sum += double{weights[static_cast<std::size_t>((r * count + j) * count + k)]} * streams[at(k, r, i)];
            const double change = double{x[static_cast<std::size_t>(r * width + i)]} - streams[at(0, r, i)];
            const double factor = 1 + double{factors[static_cast<std::size_t>(r * count + j)]};
            worst = std::max({worst, std::abs(mixed[at(j, r, i)] - sum),
                              std::abs(corrected[at(j, r, i)] - (streams[at(j, r, i)] + factor * change))});
          }
        }
      }
      CHECK(worst < 1e-5);
      // The second row alone.
      std::vector<float> own, own_weights(weights.begin() + count * count, weights.begin() + 2 * count * count);
      for (std::int64_t j = 0; j < count; ++j) {
        for (std::int64_t i = 0; i < width; ++i) own.push_back(streams[at(j, 1, i)]);
      }
      device.begin({}).mix_streams({own.data(), count, width}, rows_of(own_weights, 1));
      for (std::int64_t j = 0; j < count; ++j) {
        REQUIRE(std::memcmp(own.data() + j * width, &mixed[at(j, 1, 0)], static_cast<std::size_t>(width) * 4) == 0);
      }
    }
  }
}

TEMPLATE_TEST_CASE("a row gets the size of another one, unless it is nearly zero", "", backend::Reference,
                   backend::Cpu) {
  TestType device{};
  for (const std::int64_t width : widths) {
    CAPTURE(width);
    std::vector<float> x = randoms(5, 3 * width), like = randoms(6, 3 * width);
    for (std::int64_t i = 0; i < width; ++i) x[static_cast<std::size_t>(2 * width + i)] *= 1e-4f;
    const std::vector<float> before = x;
    device.begin({}).match_rows(rows_of(x, 3), rows_of(like, 3));
    for (std::int64_t r = 0; r < 3; ++r) {
      const double size = std::max(rms(before.data() + r * width, width), std::sqrt(1e-5));
      const double factor = rms(like.data() + r * width, width) / size;
      for (std::int64_t i = r * width; i < (r + 1) * width; ++i)
        CHECK(x[static_cast<std::size_t>(i)] == Approx(before[static_cast<std::size_t>(i)] * factor).epsilon(1e-5));
    }
    std::vector<float> copy(x.size());
    device.begin({}).copy_rows(rows_of(x, 3), rows_of(copy, 3));
    CHECK(copy == x);
  }
}

TEMPLATE_TEST_CASE("gates count from their mean and a multiple of their deviation", "", backend::Reference,
                   backend::Cpu) {
  TestType device{};
  for (const std::int64_t width : widths) {
    for (const float cutoff : {-1.0f, 0.0f, 0.84f}) {
      CAPTURE(width, cutoff);
      const std::int64_t rows = 3;
      const std::vector<float> given = randoms(7, rows * 2 * width);
      std::vector<float> gate_up = given, out(static_cast<std::size_t>(rows * width));
      device.begin({}).gate_some(rows_of(gate_up, rows), cutoff, ActivationKind::gelu_tanh, rows_of(out, rows));
      double worst = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const float *const gate = given.data() + r * 2 * width, *const up = gate + width;
        double mean = 0, square = 0;
        for (std::int64_t i = 0; i < width; ++i) mean += double{gate[i]} / static_cast<double>(width);
        for (std::int64_t i = 0; i < width; ++i) square += (gate[i] - mean) * (gate[i] - mean);
        const double least = mean + double{cutoff} * std::sqrt(square / static_cast<double>(width));
        for (std::int64_t i = 0; i < width; ++i) {
          const double expected = gelu(std::max(gate[i] - least, 0.0)) * up[i];
          worst = std::max(worst, std::abs(out[static_cast<std::size_t>(r * width + i)] - expected));
        }
      }
      CHECK(worst < 1e-5);
    }
  }
  std::vector<float> gate_up(64, 1), out(32);
  gate_up[3] = std::numeric_limits<float>::quiet_NaN();
  device.begin({}).gate_some(rows_of(gate_up, 1), 0.5f, ActivationKind::gelu_tanh, rows_of(out, 1));
  CHECK(std::isnan(out[3]));
}
