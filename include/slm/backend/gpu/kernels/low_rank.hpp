// Contributions of adapters to products: a separate kernel computes t = scale * down . norm(x); the product's epilogue
// adds t . up. Each row uses its adapter's ranks. Rows without an adapter are unchanged.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/device_adapter.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// The changes of the row's adapter to a product.
SLM_DEVICE Changes changes_of(const StepRow& row, int product) {
  if (row.adapter == nullptr || product >= row.adapter->products) return {};
  return Memory<const Changes>{row.adapter->of, row.adapter->products}[product];
}

/// Returns y + t . up of one output, summed in rank order.
SLM_DEVICE float expanded(const LowRank& change, const float* t, std::int64_t output, float y) {
  const std::int64_t o = output - change.first;
  if (o < 0 || o >= change.out) return y;
  visit_elements(change, [&]<class Element>(Element) {
    const Memory<const Element> up{reinterpret_cast<const Element*>(change.up), change.rank * change.out};
    for (int j = 0; j < change.rank; ++j) y = fmaf(t[j], to_float(up[j * change.out + o]), y);
  });
  return y;
}

/// Adapter contributions to a product's rows; empty in a step without adapters.
struct LowRankRows {
  Memory<const Changes> changes;  // [rows]
  Memory<const float> t;          // [rows, most_ranks], change after change

  SLM_DEVICE explicit operator bool() const { return static_cast<bool>(changes); }

  /// Adds to the sums a and b of output i of the panel's tiles.
  SLM_DEVICE void expand(const Panel& panel, int i, int row, float& a, float& b) const {
    const Changes of = changes[row];
    if (of.count == 0) return;
    const float* from = t.part(std::int64_t{row} * most_ranks, most_ranks).data;
    for (int c = 0; c < of.count; ++c) {
      const LowRank& change = of.data[c];
      a = expanded(change, from, panel.a * tile_height + i, a);
      b = expanded(change, from, panel.b * tile_height + i, b);
      from += change.rank;
    }
  }
};

/// Computes t of a product's rows, one element per wave, and their changes. Several blocks per row: surplus blocks of
/// rows with few ranks exit at once.
struct Shrink {
  static constexpr int row_blocks = 8;
  struct Args {
    Rows x;
    NormArgs norm;
    Memory<const StepRow> rows;  // of the step
    Memory<const int> outputs;   // row i of x is this row of the step; -1: padding; empty: row i
    Memory<Changes> changes;     // [rows of x]
    Memory<float> t;             // [rows of x, most_ranks]
    int product;
  };
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.x.count, .y = row_blocks, .threads = block_threads}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x(), of_step = args.outputs ? args.outputs[row] : row;
    const Changes of = of_step < 0 ? Changes{} : changes_of(args.rows[of_step], args.product);
    if (lane.block_y() == 0 && lane.thread() == 0) args.changes[row] = of;
    int ranks = 0;
    for (int c = 0; c < of.count; ++c) ranks += of.data[c].rank;
    const int first = lane.block_y() * lane.waves();
    if (first >= ranks) return;

    row_statistics(lane, args.x, args.norm, row, 1, shared.sums);
    for (int j = first + lane.wave(); j < ranks; j += row_blocks * lane.waves()) {
      const LowRank* change = of.data;
      int rank = j;
      while (rank >= change->rank) rank -= (change++)->rank;
      float sum = 0;
      visit_elements(*change, [&]<class Element>(Element) {
        const Memory<const Element> down{reinterpret_cast<const Element*>(change->down), change->rank * change->in};
        sum = dot(lane, args, row, shared.sums.row[0], down.part(rank * change->in, change->in));
      });
      sum = lane.wave_sum(sum);
      if (lane.lane_index() == 0) args.t[std::int64_t{row} * most_ranks + j] = change->scale * sum;
    }
  }

 private:
  /// A lane's part of norm(x[row]) . weights. The assignment of inputs depends on their index only.
  template <class Lane, class Element>
  static SLM_DEVICE float dot(Lane lane, const Args& args, int row, const RowStatistics& statistics,
                              const Memory<const Element>& weights) {
    float sum = 0;
    for (int k = lane.lane_index() * 8; k < args.x.width; k += Lane::width * 8) {
      float v[8], w[8];
      load8(args.x.data, row, args.x.width, k, v);
      load_weights<Lane>(weights, k, w);
      SLM_UNROLL
      for (int i = 0; i < 8; ++i) {
        if (args.norm.kind != NormKind::none && k + i < args.x.width)
          v[i] = normalized(v[i], k + i, statistics, args.norm);
        sum = fmaf(w[i], v[i], sum);
      }
    }
    return sum;
  }

  /// Loads eight weights from `k` on, zero after the end.
  template <class Lane, class Element>
  static SLM_DEVICE void load_weights(const Memory<const Element>& weights, int k, float (&w)[8]) {
    if (weights.size % 8 != 0) {
      SLM_UNROLL
      for (int i = 0; i < 8; ++i) w[i] = k + i < weights.size ? to_float(weights[k + i]) : 0.0f;
    } else if constexpr (sizeof(Element) == 4) {
      SLM_UNROLL
      for (int i = 0; i < 8; ++i) w[i] = float_of(weights.template vector<const Word4>(k + i / 4 * 4)->word[i % 4]);
    } else {
      const Word4 words = *weights.template vector<const Word4>(k);
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) {
        w[2 * i] = Lane::template unpack_low<Element>(words.word[i]);
        w[2 * i + 1] = Lane::template unpack_high<Element>(words.word[i]);
      }
    }
  }
};

/// x[r] += contributions of the rows' adapters to the token embedding.
struct AdaptEmbedding {
  struct Args {
    Memory<const StepRow> rows;  // [count]
    Memory<float> x;             // [count, width]
    int width, count;
  };
  struct Shared {
    float t[most_ranks];
  };
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.count, .threads = 256}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x();
    const StepRow step_row = args.rows[row];
    const Changes of = changes_of(step_row, number_of(AdaptedProduct::embedding));
    for (int c = 0; c < of.count; ++c) {
      const LowRank& change = of.data[c];
      visit_elements(change, [&]<class Element>(Element) {
        const Memory<const Element> down{reinterpret_cast<const Element*>(change.down), change.rank * change.in};
        for (int j = lane.thread(); j < change.rank; j += lane.threads())
          shared.t[j] = change.scale * to_float(down[j * change.in + step_row.token]);
      });
      lane.barrier();
      for (int k = lane.thread(); k < args.width; k += lane.threads()) {
        float& x = args.x[std::int64_t{row} * args.width + k];
        x = expanded(change, shared.t, k, x);
      }
      lane.barrier();
    }
  }
};

}}}
