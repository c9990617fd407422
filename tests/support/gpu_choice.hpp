// Tokens chosen on a device, real or emulated, are the host's tokens, for any logits and settings.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "slm/backend/gpu/steps/chooser.hpp"
#include "slm/backend/gpu/steps/mask_upload.hpp"
#include "slm/decode/processor.hpp"
#include "slm/decode/random.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// The host decoder's choice for the row after `position` tokens; no_token if it throws.
inline Token chosen_by_host(const std::vector<float>& row, const Sampling& sampling, std::uint64_t position) {
  Processor processor;
  processor.start(sampling, static_cast<int>(row.size()), std::vector<Token>{0}, 1);
  if (sampling.greedy()) return processor.greedy(row);
  Distribution p;
  if (!processor.distribution(row, p)) return no_token;
  return PhiloxRandom{sampling.seed, position}.race(0, p);
}

/// A row of logits, its sampling, and the number of tokens before the draw.
struct ChoiceRow {
  std::vector<float> logits;
  Sampling sampling;
  int position;
  int vocab = 1 << 30;                   // ids from here on are excluded
  std::vector<std::uint64_t> mask = {};  // empty: none

  Token by_host(int further = 0) const {
    std::vector<float> row = logits;
    for (std::size_t id = 0; !mask.empty() && id < row.size(); ++id) {
      const bool follows = id / 64 < mask.size() && (mask[id / 64] >> id % 64 & 1) != 0;
      if (!follows) row[id] = -std::numeric_limits<float>::infinity();
    }
    return chosen_by_host(row, sampling, static_cast<std::uint64_t>(position + further));
  }
};

/// When masks are applied; only `first` is right.
enum class Masking { first, never, after_cut };

/// The same on a device, for rows of one width in one step.
template <gpu::Runtime R>
class DeviceChoice {
 public:
  template <class K>
  void launch(const typename K::Args& args) {
    if (std::is_same_v<K, gpu::Race> && late_) runtime_.template launch<gpu::Forbid>(*late_, stream_);
    runtime_.template launch<K>(args, stream_);
  }

  explicit DeviceChoice(int device) : runtime_(device), stream_(runtime_.make_stream()), chooser_(runtime_, 16) {
    runtime_.fill(tickets_.data(), 0, tickets_.size() * sizeof(int), stream_);
  }

  std::vector<Token> operator()(const std::vector<ChoiceRow>& rows, Masking masking = Masking::first) {
    const std::size_t width = rows.front().logits.size(), all = rows.size() + 1;
    gpu::DeviceBuffer<float, R> logits(runtime_, all * width);
    std::vector<gpu::StepRow> step_rows(2, {0, 1 << 20, 0, 0, 0, 0});  // without outputs
    std::vector<int> outputs;
    std::vector<Draw> draws(all);
    gpu::Choice hardest = gpu::Choice::none;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      put(logits.data() + r * width, rows[r].logits);
      draws[r] = draw_of(rows[r].sampling, std::min(rows[r].vocab, static_cast<int>(width)));
      hardest = std::max(hardest, gpu::choice_of(draws[r]));
      outputs.push_back(static_cast<int>(step_rows.size()));
      step_rows.push_back({0, rows[r].position - 1, 0, 0, 0, 0});
    }
    outputs.push_back(-1);  // padding
    std::vector<Token> tokens(all, -7);
    put(rows_.data(), step_rows);
    put(outputs_.data(), outputs);
    put(draws_.data(), draws);
    put(chosen_.data(), tokens);
    const auto count = static_cast<std::int64_t>(all);
    const gpu::Forbid::Args forbid = masks_on_device(rows, logits.memory());
    if (masking == Masking::first) launch<gpu::Forbid>(forbid);
    if (masking == Masking::after_cut) late_ = forbid;
    chooser_.choose(*this, {logits.data(), static_cast<std::int64_t>(logits.size())},
                    {.rows = rows_.memory(), .outputs = {outputs_.data(), count}, .draws = draws_.memory(), .next = {}},
                    hardest, {chosen_.data(), count}, tickets_.memory());
    late_.reset();
    landing_.read(stream_, tokens.data(), chosen_.data(), tokens.size() * sizeof(Token));
    CHECK(tokens.back() == -7);
    tokens.pop_back();
    return tokens;
  }

 private:
  gpu::Forbid::Args masks_on_device(const std::vector<ChoiceRow>& rows, gpu::Memory<float> logits) {
    std::vector<TokenMask> masks;
    for (const ChoiceRow& row : rows) masks.emplace_back(row.mask);
    std::vector<const TokenMask*> each;
    for (const TokenMask& mask : masks) each.push_back(&mask);
    StepPlan plan{};
    plan.masks = each;
    return masks_.send(plan, logits, static_cast<int>(rows.size()) + 1, stream_);
  }

  template <class T>
  void put(T* to, const std::vector<T>& from) {
    runtime_.copy_in(to, from.data(), from.size() * sizeof(T), stream_);
    runtime_.synchronize(stream_);
  }

  R runtime_;
  typename R::Stream stream_;
  gpu::Chooser<R> chooser_;
  gpu::MaskUpload<R> masks_{runtime_};
  std::optional<gpu::Forbid::Args> late_;  // launched before a race
  gpu::Landing<R> landing_{runtime_};
  gpu::DeviceBuffer<int, R> outputs_{runtime_, 16}, chosen_{runtime_, 16}, tickets_{runtime_, 16};
  gpu::DeviceBuffer<gpu::StepRow, R> rows_{runtime_, 16};
  gpu::DeviceBuffer<Draw, R> draws_{runtime_, 16};
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

/// A mask of some tokens, of none, or of a few words only; empty: the row has none.
inline std::vector<std::uint64_t> random_mask(std::size_t vocab, std::uint64_t seed) {
  std::vector<std::uint64_t> mask((vocab + 63) / 64);
  const std::uint64_t kind = mix(seed + 3) % 8;
  for (std::size_t word = 0; word < mask.size(); ++word) {
    for (int bits = 0; bits < (kind < 4 ? 3 : 1); ++bits) mask[word] |= mix(seed * 77 + word * 4 + bits);
    if (kind == 1) mask[word] = 0;
    if (kind == 2) mask[word] = word == mix(seed) % mask.size() ? 0x8000000000000001u : 0;
  }
  if (kind == 3 && mask.size() > 1) mask.resize(mask.size() / 2);
  if (kind >= 6) mask.clear();
  return mask;
}

/// Rows with masks and without, together.
template <gpu::Runtime R>
void check_masked_choices(int trials) {
  DeviceChoice<R> device(0);
  int differences[2] = {}, all_forbidden = 0, masked = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const auto seed = static_cast<std::uint64_t>(trial) + 1000;
    const std::size_t vocab = std::vector<std::size_t>{1, 31, 33, 300, 2049, 5000}[mix(seed + 77) % 6];
    std::vector<ChoiceRow> rows;
    std::vector<Token> expected;
    for (std::uint64_t r = 0; r < 1 + seed % 3; ++r) {
      const std::uint64_t own = seed * 3 + r;
      rows.push_back({random_row(vocab, own), random_sampling(own, static_cast<int>(vocab)),
                      1 + static_cast<int>(mix(own + 9) % 5000), 1 << 30, random_mask(vocab, own)});
      expected.push_back(rows.back().by_host());
      masked += !rows.back().mask.empty();
      all_forbidden += expected.back() == no_token;
    }
    CAPTURE(trial, vocab);
    REQUIRE(device(rows) == expected);
    differences[0] += device(rows, Masking::never) != expected;
    differences[1] += device(rows, Masking::after_cut) != expected;
  }
  CHECK(masked > trials);
  CHECK(all_forbidden > trials / 10);
  for (const int wrong : differences) CHECK(wrong > trials / 4);
}

/// Rows with different draws are chosen together. Emulated lanes alternate between running forward and backward.
template <gpu::Runtime R>
void check_choices(int trials, int most_devices) {
  std::vector<DeviceChoice<R>> devices;
  for (int d = 0; d < most_devices; ++d) devices.emplace_back(d);
  int unusable = 0, drawn = 0, moved = 0, mixed = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const auto seed = static_cast<std::uint64_t>(trial);
    const std::size_t vocab = std::vector<std::size_t>{1, 2, 33, 300, 2049, 5000}[mix(seed + 77) % 6];
    std::vector<ChoiceRow> rows;
    std::vector<Token> expected, elsewhere;
    for (std::uint64_t r = 0; r < 1 + seed % 3; ++r) {
      const std::uint64_t own = seed * 3 + r;
      rows.push_back({random_row(vocab, own), random_sampling(own, static_cast<int>(vocab)),
                      1 + static_cast<int>(mix(own + 9) % 5000)});
      expected.push_back(rows.back().by_host());
      elsewhere.push_back(rows.back().by_host(1));
      unusable += expected.back() == no_token;
      drawn += !rows.back().sampling.greedy();
      mixed += rows.back().sampling.greedy() != rows.front().sampling.greedy();
    }
    CAPTURE(trial, vocab);
    REQUIRE(devices[static_cast<std::size_t>(trial % most_devices)](rows) == expected);
    moved += expected != elsewhere;
  }
  // Controls: rows without a choice were included, drawn and greedy ones were mixed, and a draw keyed by another
  // position is another token.
  CHECK(unusable > trials / 20);
  CHECK(mixed > trials / 20);
  CHECK(moved > drawn / 8);
}

/// A vocabulary of that many ids, complete or without the draft's extra ids.
template <gpu::Runtime R>
void check_choice_of(int vocab, int device_index) {
  DeviceChoice<R> device(device_index);
  std::vector<float> row = random_row(static_cast<std::size_t>(vocab), 1008);
  std::vector<ChoiceRow> rows;
  std::vector<Token> expected;
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.seed = 5},
                                   Sampling{.top_k = 50, .top_p = 0.9f, .seed = 6}, Sampling{.top_p = 0.95f}}) {
    rows.push_back({row, sampling, 17});
    expected.push_back(rows.back().by_host());
  }
  CHECK(device(rows) == expected);
  row.back() = 3e38f;
  CHECK(device({{row, {.temperature = 0}, 17}}).front() == vocab - 1);
  CHECK(device({{row, {.temperature = 0}, 17, vocab - 1}}).front() < vocab - 1);
}

}  // namespace slm::testing
