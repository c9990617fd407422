// Batches on a GPU backend, real or emulated: rows of many sequences in one step have the same bits as alone.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "slm/decode/processor.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/batch.hpp"
#include "support/gpu_models.hpp"
#include "support/in_turn.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// Random numbers of one test, equal on all systems.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  int operator()(int first, int last) {
    return first + static_cast<int>(mix(++state_ * 977) % static_cast<std::uint64_t>(last - first + 1));
  }

 private:
  std::uint64_t state_;
};

inline Draw random_draw(Dice& dice, int vocab) {
  Sampling sampling{.temperature = 0, .seed = static_cast<std::uint64_t>(dice(0, 1000))};
  const int kind = dice(0, 2);
  if (kind > 0) sampling.temperature = 0.9f;
  if (kind > 1) sampling.top_k = 7, sampling.top_p = 0.8f;
  return draw_of(sampling, vocab);
}

/// Appended tokens of a sequence, and the requested results.
struct Addition {
  std::vector<Token> tokens;
  ResultSpec spec;
  std::vector<std::vector<std::uint64_t>> masks = {};  // [spec.rows] or empty

  ResultSpec masked(std::vector<TokenMask>& views) const {
    views.assign(masks.begin(), masks.end());
    ResultSpec with_masks = spec;
    with_masks.masks = views;
    return with_masks;
  }
};

/// Some rows have no mask.
inline std::vector<std::vector<std::uint64_t>> random_masks(Dice& dice, int rows, int vocab) {
  std::vector<std::vector<std::uint64_t>> masks(static_cast<std::size_t>(rows));
  for (auto& mask : masks) {
    if (dice(0, 3) == 0) continue;
    for (int word = 0; word < (vocab + 63) / 64; ++word)
      mask.push_back(mix(static_cast<std::uint64_t>(dice(0, 1 << 30))));
  }
  return masks;
}

/// Sequences that one model processes in batches and another one separately.
template <class Device>
class Companions {
 public:
  /// The first device is tested. Sequences alternate between the formats of their caches.
  Companions(const std::filesystem::path& folder, Device device, Device other, int count,
             const std::vector<KvFormat>& formats)
      : other_(other), together_(load(folder, device)), apart_(load(folder, other)) {
    for (int i = 0; i < count; ++i) {
      const KvPoolOptions pool{.format = formats[static_cast<std::size_t>(i) % formats.size()]};
      in_batch_.emplace_back(together_.pool(pool));
      alone_.emplace_back(apart_.pool(pool));
    }
  }

  const ModelInfo& info() const { return together_.info(); }
  int length(std::size_t i) const { return alone_[i].length(); }

  void truncate(std::size_t i, int length) {
    in_batch_[i].truncate(length);
    alone_[i].truncate(length);
  }

  void fork(std::size_t from, std::size_t to) {
    in_batch_[to] = in_batch_[from].fork();
    alone_[to] = alone_[from].fork();
  }

  /// additions[i] to sequence i; sequences without tokens are skipped.
  void forward(const std::vector<Addition>& additions) {
    Batch all, one;
    std::vector<std::vector<TokenMask>> views(additions.size());
    for (std::size_t i = 0; i < additions.size(); ++i) {
      if (!additions[i].tokens.empty()) all.add(in_batch_[i], additions[i].tokens, additions[i].masked(views[i]));
    }
    together_.forward(all);
    int item = 0;
    for (std::size_t i = 0; i < additions.size(); ++i) {
      if (additions[i].tokens.empty()) continue;
      CAPTURE(i, alone_[i].length(), additions[i].tokens.size());
      // Growing working memory drops the device's recordings, so this step runs directly.
      other_.reserve({1, 1, 1}, 1, ++most_of_other_, 1);
      one.clear();
      one.add(alone_[i], additions[i].tokens, additions[i].masked(views[i]));
      apart_.forward(one);
      REQUIRE(in_batch_[i].length() == alone_[i].length());
      const RowResult result = additions[i].spec.result;
      if (result == RowResult::logits) check_same(all.logits(item), one.logits(0));
      if (result == RowResult::hidden) check_same(all.hidden(item), one.hidden(0));
      if (result == RowResult::choice) REQUIRE(copied(all.choices(item)) == copied(one.choices(0)));
      ++item;
    }
  }

 private:
  static std::vector<Token> copied(std::span<const Token> tokens) { return {tokens.begin(), tokens.end()}; }
  static void check_same(View<const float, 2> found, View<const float, 2> expected) {
    REQUIRE(found.size() == expected.size());
    REQUIRE(std::memcmp(found.data, expected.data, static_cast<std::size_t>(found.size()) * sizeof(float)) == 0);
  }

  Device other_;
  AnyModel together_, apart_;
  std::vector<Sequence> in_batch_, alone_;
  int most_of_other_ = 2000;  // ids of a vocabulary
};

/// Rounds of random appends, at first prompts, of `count` sequences of random lengths, which are also rolled back,
/// forked and skipped.
template <class Device>
void check_batches(const std::filesystem::path& folder, Device device, Device other, int count, std::uint64_t seed,
                   const std::vector<KvFormat>& formats = {KvFormat::f16}) {
  Dice dice(seed);
  Companions<Device> texts(folder, device, other, count, formats);
  const int context = texts.info().context, vocab = texts.info().vocab;
  const auto append = [&](std::size_t i, int most, const ResultSpec& spec) {
    const int left_positions = context - texts.length(i) - spec.chain;
    Addition addition{{}, spec};
    for (int left = left_positions < 1 ? 0 : dice(1, std::min(most, left_positions)); left > 0; --left)
      addition.tokens.push_back(dice(0, vocab - 1));
    addition.spec.rows = spec.chain > 1 ? 1 : dice(1, std::max<int>(1, static_cast<int>(addition.tokens.size())));
    const bool masked = spec.result == RowResult::choice && spec.chain == 1 && dice(0, 2) == 0;
    if (masked) addition.masks = random_masks(dice, addition.spec.rows, vocab);
    return addition;
  };
  const auto everybody = [&](int most, RowResult result, int steps) {
    std::vector<Addition> additions;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      additions.push_back(append(i, most, {.result = result, .draw = random_draw(dice, vocab), .chain = steps}));
    return additions;
  };
  const bool every = every_combination();
  texts.forward(everybody(std::min(every ? 70 : 20, context / 2), RowResult::logits, 1));
  for (int round = 0; round < 3; ++round)
    texts.forward(everybody(1, RowResult::logits, 1));  // runs, is recorded, replayed
  for (int round = 0; round < 3; ++round) texts.forward(everybody(1, RowResult::choice, 1));
  for (int round = 0; round < (every ? 6 : 3); ++round) {
    const auto i = static_cast<std::size_t>(dice(0, count - 1)), j = static_cast<std::size_t>(dice(0, count - 1));
    texts.truncate(i, dice(0, texts.length(i)));
    if (i != j) texts.fork(j, i);
    std::vector<Addition> additions = everybody(5, round % 3 == 0 ? RowResult::hidden : RowResult::choice, 1);
    if (round % 2 == 1) additions[j].tokens.clear();
    texts.forward(additions);
  }
  for (int round = 0; round < (every ? 3 : 1); ++round) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      texts.truncate(i, std::min(texts.length(i), context / 2));
    texts.forward(everybody(2, RowResult::choice, 3));
  }
}

}  // namespace slm::testing
