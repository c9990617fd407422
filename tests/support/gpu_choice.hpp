// Tokens chosen on a device, real or emulated, are the host's tokens, for any logits and settings.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "slm/backend/gpu/steps/chooser.hpp"
#include "slm/decode/coin.hpp"
#include "slm/decode/processor.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// What the decoder chooses on the host for the row that follows `position` tokens; no_token where it throws.
inline Token chosen_by_host(const std::vector<float>& row, const Sampling& sampling, std::uint64_t position) {
  Processor processor;
  processor.start(sampling, static_cast<int>(row.size()), std::vector<Token>{0}, 1);
  if (sampling.greedy()) return processor.greedy(row);
  Distribution p;
  if (!processor.distribution(row, p)) return no_token;
  return PhiloxCoin{sampling.seed, position}.race(0, p);
}

/// The same on a device, for rows at positions that follow each other.
template <gpu::Runtime R>
class DeviceChoice {
 public:
  explicit DeviceChoice(int device) : runtime_(device), stream_(runtime_.make_stream()), chooser_(runtime_, 16) {
    runtime_.fill(tickets_.data(), 0, tickets_.size() * sizeof(int), stream_);
  }

  std::vector<Token> operator()(const std::vector<std::vector<float>>& rows, const Sampling& sampling, int position,
                                int vocab = 1 << 30) {
    const std::size_t width = rows.front().size();
    gpu::DeviceBuffer<float, R> logits(runtime_, rows.size() * width);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      runtime_.copy_in(logits.data() + r * width, rows[r].data(), width * sizeof(float), stream_);
    }
    const int of_first_row = position - 1 - first;
    runtime_.copy_in(step_.data(), &of_first_row, sizeof of_first_row, stream_);
    chooser_.begin(runtime_, stream_, draw_of(sampling, std::min(vocab, static_cast<int>(width))));
    chooser_.choose(runtime_, stream_, {logits.data(), static_cast<std::int64_t>(logits.size())},
                    static_cast<int>(rows.size()), first, step_.memory(), tickets_.memory(), false);
    std::vector<Token> tokens(rows.size(), -7);
    chooser_.read(landing_, stream_, tokens);
    return tokens;
  }

 private:
  static constexpr int first = 3;
  R runtime_;
  typename R::Stream stream_;
  gpu::Chooser<R> chooser_;
  gpu::Landing<R> landing_{runtime_};
  gpu::DeviceBuffer<int, R> step_{runtime_, 20}, tickets_{runtime_, 16};
};

inline std::vector<float> random_row(std::size_t vocab, std::uint64_t seed) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> row(vocab);
  const std::uint64_t kind = mix(seed) % 8;
  for (std::size_t id = 0; id < vocab; ++id) {
    const double value = 6 * (static_cast<double>(mix(seed * 1000003 + id) >> 11) * 0x1p-52 - 1);
    row[id] = static_cast<float>(kind == 0 ? std::round(value) : kind == 1 ? value * 1e-42 : value);
    if (kind == 2 && mix(seed + id) % 3 == 0) row[id] = -infinity;  // a grammar's mask
    if (kind == 3) row[id] = 0.25f;                                 // all equal
    if (kind == 4) row[id] = static_cast<float>(value * 1e37);      // far apart
  }
  const std::size_t at = mix(seed + 5) % vocab;
  if (kind == 5) row[at] = std::vector<float>{nan, -nan, infinity}[seed % 3];
  if (kind == 6 && seed % 4 == 0) row.assign(vocab, -infinity);
  if (kind == 7) row[at] = mix(seed) % 16 < 8 ? -0.0f : 0.0f;
  return row;
}

inline Sampling random_sampling(std::uint64_t seed, int vocab) {
  const auto pick = [&](std::uint64_t salt, std::uint64_t n) { return mix(seed * 64 + salt) % n; };
  Sampling sampling{.seed = mix(seed)};
  sampling.temperature = std::vector<float>{0.0f, 1e-42f, 0.01f, 0.7f, 1.0f, 2.5f, 100.0f}[pick(1, 7)];
  sampling.top_k = std::vector<int>{0, 0, 1, 2, 40, vocab, vocab - 1, 100000}[pick(2, 8)];
  sampling.top_p = std::vector<float>{1.0f, 1.0f, 0.9f, 0.5f, 0.013f, 0.9999999f, 1e-30f}[pick(3, 7)];
  sampling.min_p = std::vector<float>{0.0f, 0.0f, 0.02f, 0.3f, 1.0f}[pick(4, 5)];
  return sampling;
}

/// Emulated lanes take turns in running forward and backward.
template <gpu::Runtime R>
void check_choices(int trials, int most_devices) {
  std::vector<DeviceChoice<R>> devices;
  for (int d = 0; d < most_devices; ++d) devices.emplace_back(d);
  int unusable = 0, drawn = 0, moved = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const auto seed = static_cast<std::uint64_t>(trial);
    const std::size_t vocab = std::vector<std::size_t>{1, 2, 33, 300, 2049, 5000}[mix(seed + 77) % 6];
    const Sampling sampling = random_sampling(seed, static_cast<int>(vocab));
    const int position = 1 + static_cast<int>(mix(seed + 9) % 5000);
    std::vector<std::vector<float>> rows;
    std::vector<Token> expected, elsewhere;
    for (std::uint64_t r = 0; r < 1 + seed % 3; ++r) {
      rows.push_back(random_row(vocab, seed * 3 + r));
      expected.push_back(chosen_by_host(rows.back(), sampling, static_cast<std::uint64_t>(position) + r));
      elsewhere.push_back(chosen_by_host(rows.back(), sampling, static_cast<std::uint64_t>(position) + r + 1));
      unusable += expected.back() == no_token;
    }
    CAPTURE(trial, vocab, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p);
    REQUIRE(devices[static_cast<std::size_t>(trial % most_devices)](rows, sampling, position) == expected);
    drawn += !sampling.greedy();
    moved += expected != elsewhere;
  }
  // As controls: rows without a choice were among them, and a draw keyed by another position is another token.
  CHECK(unusable > trials / 20);
  CHECK(moved > drawn / 4);
}

/// A vocabulary of that many ids, whole or without those that only the draft has.
template <gpu::Runtime R>
void check_choice_of(int vocab, int device_index) {
  DeviceChoice<R> device(device_index);
  std::vector<float> row = random_row(static_cast<std::size_t>(vocab), 1008);
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.seed = 5},
                                   Sampling{.top_k = 50, .top_p = 0.9f, .seed = 6}, Sampling{.top_p = 0.95f}}) {
    CHECK(device({row}, sampling, 17) == std::vector<Token>{chosen_by_host(row, sampling, 17)});
  }
  row.back() = 3e38f;
  CHECK(device({row}, {.temperature = 0}, 17).front() == vocab - 1);
  CHECK(device({row}, {.temperature = 0}, 17, vocab - 1).front() < vocab - 1);
}

}  // namespace slm::testing
