// Chooses tokens from rows of logits with the arithmetic of core/draw.hpp: the same tokens as on the host.
//
// Forbid sets the logits of tokens that a mask forbids to minus infinity. Peak finds the largest logit of each row, the
// greedy choice. Cut finds the limit of top_k and top_p. Race draws among the remaining tokens. Each skips rows that do
// not need it.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/core/draw.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// The outputs of a step: for each row of logits its step row, its draw, and the next step's row.
struct StepOutputs {
  Memory<const StepRow> rows;
  Memory<const int> outputs;  // [count], row indices; -1: padding; empty: output i is row i
  Memory<const Draw> draws;   // [count]
  Memory<StepRow> next;       // [count]; empty: no further step

  /// The row of an output; sequence -1 for padding.
  SLM_DEVICE StepRow row(int output) const {
    const int row = outputs ? outputs[output] : output;
    return row < 0 ? StepRow{0, 0, -1, 0, 0, 0, nullptr} : rows[row];
  }

  SLM_DEVICE void choose(int output, int token) const {
    if (!next) return;
    StepRow follows = row(output);
    follows.token = token == no_token ? 0 : token;  // the successor of an invalid row is not used
    ++follows.position;
    next[output] = follows;
  }
};

/// logits[r][k] = -infinity where the mask of row r has no bit k.
struct Forbid {
  struct Args {
    Memory<float> logits;               // [rows, width]
    Memory<const int> masks_of;         // [rows], the index of a row's mask; -1: none
    Memory<const std::uint32_t> masks;  // [masks, ceil(width / 32)], bit k % 32 of word k / 32
    int width, rows;
  };
  struct Shared {};
  static constexpr int max_block = 256, at_once = 8;  // tokens per thread
  static Grid grid(const Args& args, int) {
    return {.x = (args.width + at_once * max_block - 1) / (at_once * max_block), .y = args.rows, .threads = max_block};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int row = lane.block_y(), mask = args.masks_of[row];
    if (mask < 0) return;
    const std::int64_t words = std::int64_t{mask} * ((args.width + 31) / 32), base = std::int64_t{row} * args.width;
    const int first = lane.block_x() * at_once * max_block + lane.thread();
    SLM_UNROLL
    for (int i = 0; i < at_once; ++i) {
      const int k = first + i * max_block;
      if (k >= args.width) return;
      if ((args.masks[words + k / 32] >> k % 32 & 1) == 0) args.logits[base + k] = -__builtin_huge_valf();
    }
  }
};

/// A candidate: the larger rank wins, ties go to the lower token. Rank 0: excluded.
struct Ranked {
  std::uint64_t rank;
  int token;

  SLM_DEVICE void keep_better(const Ranked& other) {
    if (other.rank > rank || (other.rank == rank && other.token < token)) *this = other;
  }
};

struct ChoiceArgs {
  Memory<const float> logits;        // [rows, width]
  StepOutputs outputs;               // [rows]; Peak chooses for greedy ones, Race for the others
  Memory<int> peaks;                 // [rows], the most likely tokens
  Memory<const std::uint64_t> cuts;  // [rows], for Race, of draws with top_k or top_p
  Memory<int> tokens;                // [rows], the chosen tokens; no_token for an invalid row
  Memory<Ranked> partial;            // [rows, blocks]
  Memory<int> tickets;               // [rows], zero between launches
  int width, rows;
};

/// A token's place in the order of likelihood: larger is more likely; ties go to the lower token. Never 0.
SLM_DEVICE std::uint64_t place_of(float logit, int token) {
  const std::uint32_t key = static_cast<std::uint32_t>(order_key(logit)) ^ 0x80000000u;
  return std::uint64_t{key} << 32 | (0xffffffffu - static_cast<std::uint32_t>(token));
}

/// Finds the best token of each row that Ranking takes: several blocks scan a part of the row each, and the last one
/// compares their results.
template <class Ranking>
struct BestOfRows {
  using Args = ChoiceArgs;
  struct Shared {
    Ranked best[256];
    int last;
  };
  static constexpr int max_block = 256, most_blocks = 64;

  /// At least about two thousand tokens per block.
  static SLM_DEVICE int blocks(const Args& args) {
    const int wanted = (args.width + 2047) / 2048;
    return wanted < most_blocks ? wanted : most_blocks;
  }
  static Grid grid(const Args& args, int) { return {.x = blocks(args), .y = args.rows, .threads = 256}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int t = lane.thread(), row = lane.block_y(), count = blocks(args);
    const StepRow of = args.outputs.row(row);
    if (of.sequence < 0) return;
    const Draw draw = args.outputs.draws[row];
    if (!Ranking::takes(draw)) return;
    const int width = args.width < draw.vocab ? args.width : draw.vocab;
    Ranking ranking(args, draw, row, of.position);
    Ranked best{0, width};
    for (int k = 2 * (lane.block_x() * 256 + t); k < width; k += 2 * count * 256) {
      ranking.begin_pair(k / 2);
      best.keep_better({ranking.of(k), k});
      if (k + 1 < width) best.keep_better({ranking.of(k + 1), k + 1});
    }
    reduce(lane, shared, best);
    const std::int64_t at = std::int64_t{row} * most_blocks;
    if (t == 0) {
      args.partial[at + lane.block_x()] = shared.best[0];
      lane.fence();
      shared.last = Lane::atomic_add(&args.tickets[row], 1) == count - 1;
    }
    lane.barrier();
    if (shared.last == 0) return;
    lane.fence();
    reduce(lane, shared, t < count ? args.partial[at + t] : Ranked{0, width});
    if (t != 0) return;
    const int token = ranking.token(shared.best[0]);
    args.tickets[row] = 0;
    if constexpr (Ranking::peaks) {
      args.peaks[row] = token;
      if (!draw.greedy()) return;
    }
    args.tokens[row] = token;
    args.outputs.choose(row, token);
  }

 private:
  template <class Lane>
  static SLM_DEVICE void reduce(Lane lane, Shared& shared, const Ranked& mine, Where where = Where::here()) {
    const int t = lane.thread();
    lane.barrier(where);
    shared.best[t] = mine;
    for (int step = 128; step > 0; step /= 2) {
      lane.barrier(where);
      if (t < step) shared.best[t].keep_better(shared.best[t + step]);
    }
    lane.barrier(where);
  }
};

/// The highest logit. NaN and +infinity rank highest, so that they are detected; such a row has no choice.
class PeakRanking {
 public:
  static constexpr bool peaks = true;
  static SLM_DEVICE bool takes(const Draw&) { return true; }
  SLM_DEVICE PeakRanking(const ChoiceArgs& args, const Draw&, int row, int)
      : logits_(args.logits), base_(std::int64_t{row} * args.width) {}
  SLM_DEVICE void begin_pair(int) {}
  SLM_DEVICE std::uint64_t of(int k) const {
    const std::int32_t key = order_key(logits_[base_ + k]);
    if (key >= infinity_key || key < minus_infinity_key) return unusable;
    return static_cast<std::uint64_t>(std::int64_t{key} - minus_infinity_key);
  }
  static SLM_DEVICE int token(const Ranked& best) {
    return best.rank == 0 || best.rank == unusable ? no_token : best.token;
  }

 private:
  static constexpr std::uint64_t unusable = ~std::uint64_t{0};
  Memory<const float> logits_;
  std::int64_t base_;
};

/// The earliest arrival, see PhiloxRandom::race.
class RaceRanking {
 public:
  static constexpr bool peaks = false;
  static SLM_DEVICE bool takes(const Draw& draw) { return !draw.greedy(); }
  SLM_DEVICE RaceRanking(const ChoiceArgs& args, const Draw& draw, int row, int position)
      : logits_(args.logits),
        draw_(draw),
        base_(std::int64_t{row} * args.width),
        position_(static_cast<std::uint64_t>(position + 1)),
        there_(args.peaks[row] != no_token),
        cut_(there_ && draw.cuts() ? args.cuts[row] : 0),
        peak_(there_ ? logits_[base_ + args.peaks[row]] : 0) {}
  SLM_DEVICE void begin_pair(int pair) { words_ = race_words(draw_.seed, position_, static_cast<std::uint32_t>(pair)); }
  SLM_DEVICE std::uint64_t of(int k) const {
    const float logit = logits_[base_ + k];
    if (!there_ || place_of(logit, k) < cut_) return 0;
    const std::uint64_t weight = weight_of(logit, peak_, draw_.scale);
    if (weight < draw_.min_weight) return 0;
    const double time =
        race_distance(race_uniform(words_, static_cast<std::uint32_t>(k))) / static_cast<double>(weight);
    return ~__builtin_bit_cast(std::uint64_t, time);  // positive doubles order like their bits
  }
  static SLM_DEVICE int token(const Ranked& best) { return best.rank == 0 ? no_token : best.token; }

 private:
  Memory<const float> logits_;
  Draw draw_;
  std::int64_t base_;
  std::uint64_t position_;
  bool there_;         // false: the row has no choice, and Cut has not written its place
  std::uint64_t cut_;  // place of the last candidate
  float peak_;
  std::array<std::uint32_t, 4> words_{};
};

struct Peak : BestOfRows<PeakRanking> {};
struct Race : BestOfRows<RaceRanking> {};

/// cuts[r]: the place of the last token that top_k and top_p keep. Bisection over places, one block per row.
struct Cut {
  struct Args {
    Memory<const float> logits;  // [rows, width]
    StepOutputs outputs;         // [rows]
    Memory<const int> peaks;     // [rows]
    Memory<std::uint64_t> cuts;  // [rows]
    int width, rows;
  };
  static constexpr int max_block = 512, least_threads = 256;  // a power of two
  struct Shared {
    std::uint64_t sum[max_block];
    int count[max_block];
  };
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = max_block}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x();
    if (args.outputs.row(row).sequence < 0) return;
    const Draw draw = args.outputs.draws[row];
    if (draw.greedy() || !draw.cuts()) return;
    const int peak = args.peaks[row];
    if (peak == no_token) return;
    const Row all{args.logits, std::int64_t{row} * args.width, args.width < draw.vocab ? args.width : draw.vocab,
                  draw.scale, args.logits[std::int64_t{row} * args.width + peak]};
    const std::uint64_t end = place_of(all.peak, peak) + 1;
    std::uint64_t cut = 0;
    if (draw.top_k > 0 && draw.top_k < all.width) {
      cut = last_place(lane, shared, all, false, static_cast<std::uint64_t>(draw.top_k), 0, end);
    }
    if (draw.top_p != 0) {
      add_up(lane, shared, all, true, cut);
      const std::uint64_t wanted = draw.wanted(shared.sum[0]);
      cut = last_place(lane, shared, all, true, wanted, cut, end);
    }
    if (lane.thread() == 0) args.cuts[row] = cut;
  }

 private:
  struct Row {
    Memory<const float> logits;
    std::int64_t base;
    int width;
    double scale;
    float peak;
  };

  /// Counts the tokens from a place on into shared.count[0], and sums their weights, or counts them, into
  /// shared.sum[0].
  template <class Lane>
  static SLM_DEVICE void add_up(Lane lane, Shared& shared, const Row& row, bool weights, std::uint64_t from,
                                Where where = Where::here()) {
    const int t = lane.thread();
    std::uint64_t sum = 0;
    int count = 0;
    for (int k = t; k < row.width; k += lane.threads()) {
      const float logit = row.logits[row.base + k];
      if (place_of(logit, k) < from) continue;
      ++count;
      if (weights) sum += weight_of(logit, row.peak, row.scale);
    }
    lane.barrier(where);
    shared.sum[t] = weights ? sum : static_cast<std::uint64_t>(count);
    shared.count[t] = count;
    for (int step = lane.threads() / 2; step > 0; step /= 2) {
      lane.barrier(where);
      if (t < step) {
        shared.sum[t] += shared.sum[t + step];
        shared.count[t] += shared.count[t + step];
      }
    }
    lane.barrier(where);
  }

  /// The largest place from which on tokens sum to `wanted`. The tokens from `low` on do; those from `high` on do not.
  template <class Lane>
  static SLM_DEVICE std::uint64_t last_place(Lane lane, Shared& shared, const Row& row, bool weights,
                                             std::uint64_t wanted, std::uint64_t low, std::uint64_t high,
                                             Where where = Where::here()) {
    int from_low = row.width, from_high = 0;  // tokens from low and from high on
    while (high - low > 1 && from_low - from_high > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      add_up(lane, shared, row, weights, middle, where);
      if (shared.sum[0] >= wanted) {
        low = middle;
        from_low = shared.count[0];
      } else {
        high = middle;
        from_high = shared.count[0];
      }
    }
    return low;
  }
};

}}}
