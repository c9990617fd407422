// Kernels of mixtures of experts besides their products: the choice of a row's experts, the grouping of the rows by
// expert, the inner activations, and the weighted sum.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/expert_product.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/core/routing.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

inline constexpr int most_experts = 1024;

struct RouteArgs {
  Rows x;
  NormArgs norm;
  Memory<const StepRow> rows;       // [x.count]
  Memory<const float> logits;       // [x.count, experts]
  Memory<const float> shared_gate;  // [x.count]; empty: the shared expert's weight is 1
  Memory<const float> choice_bias;  // [experts]; may be empty
  Memory<const float> factors;      // [experts]; may be empty
  Memory<float> normed;             // [x.count, width]
  Memory<float> weights;            // [x.count, of_row]
  Memory<int> chosen;               // [x.count, of_row]: experts by ascending index; -1: none
  Memory<int> order;                // [x.count * of_row]
  Memory<ExpertRows> groups;        // enough for any choice
  Memory<int> ticket;               // one, zero between launches
  RouterScores scores;
  RouterSettings settings;
  int experts, chosen_count;
  int of_row;      // chosen_count, and one more with a shared expert
  int group_rows;  // rows of a group, at most
};

/// Chooses the experts of each row like choose_experts(), and writes the normalised rows. A padding row has no experts.
/// The last block to end groups the places by expert, in ascending order.
struct RouteRows {
  using Args = RouteArgs;
  struct Shared {
    BlockSums sums;
    float score[most_experts], mark[most_experts];
    int left[most_experts];  // whether an expert may still be chosen
    int picks[most_experts], sorted[most_experts];
    float group_sums[most_experts / 2];
    int begin[most_experts + 1];  // in `order`, of each expert's places
    int places[block_threads], groups[block_threads];
    int last;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.x.count, .threads = block_threads}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x(), width = args.x.width;
    const std::int64_t first = std::int64_t{row} * args.of_row;
    if (args.rows[row].sequence < 0) {
      for (int j = lane.thread(); j < args.of_row; j += lane.threads()) args.chosen[first + j] = -1;
    } else {
      row_statistics(lane, args.x, args.norm, row, 1, shared.sums);
      for (int k = lane.thread(); k < width; k += lane.threads()) {
        const std::int64_t at = std::int64_t{row} * width + k;
        const float v = args.x.data[at];
        args.normed[at] = args.norm.kind == NormKind::none ? v : normalized(v, k, shared.sums.row[0], args.norm);
      }
      if (lane.wave() == 0) choose(lane, args, shared, row);
    }
    lane.fence();
    lane.barrier();
    if (lane.thread() == 0) shared.last = Lane::atomic_add(&args.ticket[0], 1) == args.x.count - 1;
    lane.barrier();
    if (shared.last == 0) return;
    lane.fence();
    if (lane.thread() == 0) args.ticket[0] = 0;
    group(lane, args, shared);
  }

 private:
  static constexpr int none = most_experts;

  /// By one wave.
  template <class Lane>
  static SLM_DEVICE void choose(Lane lane, const Args& args, Shared& shared, int row) {
    const int i = lane.lane_index(), experts = args.experts, count = args.chosen_count;
    score_experts(lane, args, shared, std::int64_t{row} * experts);
    if (args.settings.groups > 1 && args.scores != RouterScores::masked) keep_groups(lane, args, shared);
    int found = 0;
    for (; found < count; ++found) {
      const int best = best_of(lane, shared, experts);
      if (best == none) break;
      if (args.scores == RouterScores::masked) weigh_masked(lane, args, shared, best);
      lane.wave_barrier();
      if (i == 0) shared.picks[found] = best, shared.left[best] = 0;
      lane.wave_barrier();
    }
    for (int j = i; j < found; j += Lane::width) {
      int place = 0;
      for (int other = 0; other < found; ++other) place += shared.picks[other] < shared.picks[j];
      shared.sorted[place] = shared.picks[j];
    }
    lane.wave_barrier();
    float sum = 0;
    for (int j = 0; j < found; ++j) sum += shared.score[shared.sorted[j]];
    sum = fmaxf(sum + args.settings.added_to_sum, args.settings.least_sum);
    const std::int64_t first = std::int64_t{row} * args.of_row;
    for (int j = i; j < args.of_row; j += Lane::width) {
      int expert = -1;
      float weight = 0;
      if (j >= count) {
        expert = experts;
        weight = args.shared_gate ? 1.0f / (1.0f + expf(-args.shared_gate[row])) : 1.0f;
      } else if (j < found) {
        expert = shared.sorted[j];
        weight = shared.score[expert];
        if (args.scores != RouterScores::masked) {
          if (args.settings.normalizes) weight /= sum;
          weight *= args.settings.scale;
          if (args.factors) weight *= args.factors[expert];
        }
      }
      args.chosen[first + j] = expert;
      args.weights[first + j] = weight;
    }
  }

  /// Fills score, mark and left from the logits at `first`.
  template <class Lane>
  static SLM_DEVICE void score_experts(Lane lane, const Args& args, Shared& shared, std::int64_t first) {
    const int experts = args.experts;
    float largest = -INFINITY, sum = 0;
    for (int e = lane.lane_index(); e < experts; e += Lane::width) largest = fmaxf(largest, args.logits[first + e]);
    largest = lane.wave_max(largest);
    for (int e = lane.lane_index(); e < experts; e += Lane::width) {
      const float logit = args.logits[first + e];
      float score = logit;
      if (args.scores == RouterScores::softmax) score = expf(logit - largest);
      if (args.scores == RouterScores::sigmoid) score = 1.0f / (1.0f + expf(-logit));
      sum += score;
      shared.score[e] = score;
    }
    sum = lane.wave_sum(sum);
    for (int e = lane.lane_index(); e < experts; e += Lane::width) {
      if (args.scores == RouterScores::softmax) shared.score[e] /= sum;
      const bool biased = args.choice_bias && args.scores != RouterScores::masked;
      const float mark = biased ? shared.score[e] + args.choice_bias[e] : shared.score[e];
      shared.mark[e] = mark == mark ? mark : -INFINITY;  // not a number: never better
      shared.left[e] = 1;
    }
    lane.wave_barrier();
  }

  /// The expert with the largest mark of those left, of equal ones the first; none if none is left.
  template <class Lane>
  static SLM_DEVICE int best_of(Lane lane, const Shared& shared, int experts, Where where = Where::here()) {
    float largest = -INFINITY;
    int best = none;
    for (int e = lane.lane_index(); e < experts; e += Lane::width) {
      if (shared.left[e] == 0 || (best != none && !(shared.mark[e] > largest))) continue;
      largest = shared.mark[e];
      best = e;
    }
    const float of_all = lane.wave_max(largest, where);
    const int own = largest == of_all ? best : none;
    return static_cast<int>(-lane.wave_max(-static_cast<float>(own), where));  // exact: small integers
  }

  /// Leaves the experts of the groups with the largest sums of their two best marks, or with the best marks.
  template <class Lane>
  static SLM_DEVICE void keep_groups(Lane lane, const Args& args, Shared& shared) {
    const int groups = args.settings.groups, size = args.experts / groups;
    float* const sums = shared.group_sums;
    for (int g = lane.lane_index(); g < groups; g += Lane::width) {
      float first = -INFINITY, second = -INFINITY;
      for (int e = g * size; e < (g + 1) * size; ++e) {
        const float mark = shared.mark[e];
        second = fmaxf(second, fminf(first, mark));
        first = fmaxf(first, mark);
      }
      sums[g] = args.settings.by_best ? first : first + second;
    }
    lane.wave_barrier();
    for (int g = lane.lane_index(); g < groups; g += Lane::width) {
      int better = 0;
      for (int other = 0; other < groups; ++other)
        better += sums[other] > sums[g] || (sums[other] == sums[g] && other < g);
      for (int e = g * size; better >= args.settings.kept_groups && e < (g + 1) * size; ++e) shared.left[e] = 0;
    }
    lane.wave_barrier();
  }

  /// The weight of a masked choice: its share of a softmax over those left that are close to it.
  template <class Lane>
  static SLM_DEVICE void weigh_masked(Lane lane, const Args& args, Shared& shared, int best,
                                      Where where = Where::here()) {
    const float largest = shared.mark[best];
    float sum = 0;
    for (int e = lane.lane_index(); e < args.experts; e += Lane::width) {
      const float logit = shared.mark[e];
      const bool far = (largest - logit) / fmaxf(fabsf(logit), largest) > args.settings.closeness;
      if (shared.left[e] != 0 && !far) sum += expf(logit - largest);
    }
    sum = lane.wave_sum(sum, where);
    lane.wave_barrier(where);
    if (lane.lane_index() == 0) shared.score[best] = 1.0f / sum;
  }

  /// Lists the places by expert, in order and groups. By a whole block, after all choices.
  template <class Lane>
  static SLM_DEVICE void group(Lane lane, const Args& args, Shared& shared) {
    const int t = lane.thread(), all = args.experts + args.of_row - args.chosen_count;
    const int places = args.x.count * args.of_row, own = (all + block_threads - 1) / block_threads;
    for (int e = t; e < all; e += block_threads) {
      int count = 0;
      for (int place = 0; place < places; ++place) count += args.chosen[place] == e;
      shared.begin[e] = count;
    }
    lane.barrier();
    // A thread has `own` adjacent experts.
    const int first = t * own, end = first + own < all ? first + own : all;
    const auto groups_of = [&](int count) { return (count + args.group_rows - 1) / args.group_rows; };
    int own_places = 0, own_groups = 0;
    for (int e = first; e < end; ++e) {
      own_places += shared.begin[e];
      own_groups += groups_of(shared.begin[e]);
    }
    shared.places[t] = own_places;
    shared.groups[t] = own_groups;
    lane.barrier();
    for (int step = 1; step < block_threads; step *= 2) {
      const int more_places = t >= step ? shared.places[t - step] : 0;
      const int more_groups = t >= step ? shared.groups[t - step] : 0;
      lane.barrier();
      shared.places[t] += more_places;
      shared.groups[t] += more_groups;
      lane.barrier();
    }
    int place = shared.places[t] - own_places, index = shared.groups[t] - own_groups;
    for (int e = first; e < end; ++e) {
      const int count = shared.begin[e];
      shared.begin[e] = place;
      for (int from = 0; from < count; from += args.group_rows) {
        const int left = count - from;
        args.groups[index++] = {e, place + from, left < args.group_rows ? left : args.group_rows};
      }
      place += count;
    }
    for (int i = shared.groups[block_threads - 1] + t; i < static_cast<int>(args.groups.size); i += block_threads)
      args.groups[i] = {-1, 0, 0};
    lane.barrier();
    for (int e = t; e < all; e += block_threads) {
      int to = shared.begin[e];
      for (int from = 0; from < places; ++from) {
        if (args.chosen[from] == e) args.order[to++] = from;
      }
    }
  }
};

/// Replaces an expert's first halves by activation(gate) * up, or their activation without a gate.
struct ActivateExperts {
  struct Args {
    Memory<float> gate_up;     // [places, stride]
    Memory<const int> chosen;  // [places]
    int places, of_row, chosen_count;
    int stride;
    int width, shared_width;  // of inner activations: of an expert, and of the shared one
    bool gated;
    Activation activation;
    float limit, alpha;  // see RouterSettings
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.places, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int place = lane.block_x();
    if (args.chosen[place] < 0) return;
    const int width = place % args.of_row < args.chosen_count ? args.width : args.shared_width;
    const std::int64_t first = std::int64_t{place} * args.stride;
    for (int k = lane.thread(); k < width; k += lane.threads()) {
      float gate = args.gate_up[first + k], up = args.gated ? args.gate_up[first + width + k] : 1.0f;
      if (args.gated && args.limit != 0) {
        gate = args.alpha * (gate > args.limit ? args.limit : gate);
        up = up > args.limit ? args.limit : up < -args.limit ? -args.limit : up;
        up = (up + 1.0f) / args.alpha;
      }
      args.gate_up[first + k] = activate(args.activation, gate) * up;
    }
  }
};

/// x += factor * norm(the weighted sum of the results of a row's experts, by ascending index).
struct AddExperts {
  struct Args {
    Memory<const float> results;  // [count, of_row, width]
    Memory<const float> weights;  // [count, of_row]
    Memory<const int> chosen;     // [count, of_row]
    Memory<float> sums;           // [count, width]; used with a norm
    Memory<float> x;              // [count, width]
    int count, of_row, width;
    NormArgs norm;
    float factor;
  };
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.count, .threads = block_threads}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x();
    const std::int64_t first = std::int64_t{row} * args.width, first_place = std::int64_t{row} * args.of_row;
    const bool norms = args.norm.kind != NormKind::none;
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      float sum = 0;
      for (int j = 0; j < args.of_row; ++j) {
        const std::int64_t place = first_place + j;
        if (args.chosen[place] < 0) continue;
        sum = fmaf(args.weights[place], args.results[place * args.width + k], sum);
      }
      if (norms) {
        args.sums[first + k] = sum;
      } else {
        args.x[first + k] = fmaf(args.factor, sum, args.x[first + k]);
      }
    }
    if (!norms) return;
    lane.barrier();
    row_statistics(lane, Rows{{args.sums.data, args.sums.size}, args.width, args.count}, args.norm, row, 1,
                   shared.sums);
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      const float v = normalized(args.sums[first + k], k, shared.sums.row[0], args.norm);
      args.x[first + k] = fmaf(args.factor, v, args.x[first + k]);
    }
  }
};

}}}
