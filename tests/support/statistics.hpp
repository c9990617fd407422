// Chi-square tests of generated texts against an exactly known distribution.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace slm::testing {

/// P(a chi-square variable with that many degrees of freedom exceeds x): the regularised upper incomplete gamma
/// function Q(degrees / 2, x / 2), by series or continued fraction, in logarithms so that tiny values keep their size.
inline double chi_square_tail(double x, double degrees) {
  if (x <= 0) return 1;
  const double a = degrees / 2, z = x / 2;
  const double log_front = a * std::log(z) - z - std::lgamma(a);
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = 1; term > sum * 1e-16; ++n) sum += term *= z / (a + n);
    return 1 - sum * std::exp(log_front);
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (double i = 1; i < 10000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    const double delta = d * c;
    h *= delta;
    if (std::abs(delta - 1) < 1e-14) break;
  }
  return std::exp(log_front) * h;
}

struct Fit {
  double p = 1;                     // of the chi-square test, cells with an expectation under 5 pooled
  std::int64_t out_of_support = 0;  // observations that the distribution excludes
  double variation = 0;             // total variation between the observed frequencies and the distribution
  double noise = 0;                 // its expectation if the distribution is correct

  bool rejects() const { return p < 1e-6 || out_of_support > 0; }
};

/// Compares counts with probabilities, cell by cell.
inline Fit compare(const std::vector<std::int64_t>& counts, const std::vector<double>& law) {
  constexpr double pi = 3.14159265358979;
  Fit fit;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  double statistic = 0, pooled_expected = 0, pooled_count = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = law[i] * static_cast<double>(total);
    const auto count = static_cast<double>(counts[i]);
    fit.variation += std::abs(count / static_cast<double>(total) - law[i]) / 2;
    fit.noise += std::sqrt(law[i] * (1 - law[i]) / (2 * pi * static_cast<double>(total)));
    if (law[i] == 0) {
      fit.out_of_support += counts[i];
    } else if (expected < 5) {
      pooled_expected += expected;
      pooled_count += count;
    } else {
      add(count, expected);
    }
  }
  if (pooled_expected >= 5) add(pooled_count, pooled_expected);
  if (cells > 1) fit.p = chi_square_tail(statistic, cells - 1);
  return fit;
}

/// Two samples of the same unknown distribution: chi-square over cells that both filled, rare cells pooled.
inline double two_sample_p(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  double total_a = 0, total_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    total_a += static_cast<double>(a[i]);
    total_b += static_cast<double>(b[i]);
  }
  double statistic = 0, rare_a = 0, rare_b = 0;
  int cells = 0;
  const auto add = [&](double count_a, double count_b) {
    const double share = (count_a + count_b) / (total_a + total_b);
    statistic += (count_a - share * total_a) * (count_a - share * total_a) / (share * total_a) +
                 (count_b - share * total_b) * (count_b - share * total_b) / (share * total_b);
    ++cells;
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto count_a = static_cast<double>(a[i]), count_b = static_cast<double>(b[i]);
    if (count_a + count_b < 20) {
      rare_a += count_a;
      rare_b += count_b;
    } else {
      add(count_a, count_b);
    }
  }
  if (rare_a + rare_b >= 20) add(rare_a, rare_b);
  return cells > 1 ? chi_square_tail(statistic, cells - 1) : 1;
}

}  // namespace slm::testing
