// Causal attention over the KV cache on the matrix unit, for one row and for prompts, with the same bits.
//
// The sequence is divided into chunks of 64 at absolute positions. A chunk yields a largest score, a sum and a mix of
// values. merge() combines chunks in order of position: in registers if one block processes all of them (prompts), or
// in the last block to finish if each chunk has a block (few rows).
//
// Positions are rows of operand A, queries are columns: scores = K q, then out = V^T p. The queries of a block belong
// to rows of one sequence and to heads that share one KV head. A chunk is a page, so page locations affect addresses
// only.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/kernels/attention_parts.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Element: the type in the pages. Adjusted: scores have a soft cap, or a factor by position.
template <bool Adjusted, int Dim, int Queries, class Element>
struct AttendRows {
  using Args = AttentionArgs;
  using Head = KvHead<Element>;
  static constexpr int waves = chunk / 16, row_words = Dim / 2 + 4, score_words = chunk + 4;
  // Shared memory holds a part of the dimensions of keys or values at a time.
  static constexpr int part_dims = Dim <= 256 ? Dim : 64, parts = Dim / part_dims, part_words = part_dims / 2 + 4;
  // Tiles of 16 dimensions of a wave.
  static constexpr int dim_tiles = Dim / 16 / waves, part_tiles = part_dims / 16 / waves;
  // Whether a thread prefetches keys and values. Wider heads would exceed the registers.
  static constexpr bool ahead = Dim <= 128;
  struct Shared {
    alignas(16) std::uint32_t q[Queries][row_words];
    alignas(16) std::uint32_t kv[chunk][part_words];        // keys, then values
    alignas(16) std::uint32_t score[Queries][score_words];  // fp32 scores, then half weights
    alignas(16) float scale[2][Head::scaled ? chunk : 4];   // of keys and of values
    AttentionState state[Queries];
    AttentionQuery query[Queries];
    StepSequence tile;
    int last;
  };
  static constexpr int max_block = waves * 64;
  static SLM_DEVICE int blocks(const Args& args) { return QueryTiles(args, Queries).blocks(args); }
  static Grid grid(const Args& args, int wave_width) {
    return {.x = blocks(args), .y = args.kv, .z = args.chunks == 0 ? 1 : args.chunks, .threads = waves * wave_width};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    using L = typename Lane::Matrix;
    constexpr int columns = Queries / L::columns;
    const int i = lane.lane_index(), wave = lane.wave(), kv_head = lane.block_y(), group = args.group;
    const QueryTiles of_rows(args, Queries);
    const bool whole_rows = of_rows.blocks_of_row == 1;
    const int tile_of_rows = whole_rows ? lane.block_x() : lane.block_x() / of_rows.blocks_of_row;
    const StepSequence own_rows = rows_of_tile(lane, args, shared, of_rows, tile_of_rows);
    if (own_rows.rows == 0) return;
    const StepRow row = args.rows[own_rows.first_row];
    const PageTable table = args.pages.table(row);
    const int skipped = whole_rows ? 0 : lane.block_x() % of_rows.blocks_of_row * Queries;
    const int left = own_rows.rows * group - skipped, count = left < Queries ? left : Queries;
    const int end = row.position + own_rows.rows - 1;  // the last position visible to any query of the block
    const int oldest = args.window == 0 ? 0 : row.position + 1 - args.window;
    const int first_chunk = oldest > 0 ? oldest / chunk : 0, last_chunk = end / chunk;
    const bool split = args.chunks != 0;
    const int begin = split ? first_chunk + lane.block_z() : first_chunk;
    if (begin > last_chunk) return;
    const int last = split ? begin : last_chunk;

    // Keys of the next chunk are loaded while values are weighted, and values while scores are computed.
    Carried<Lane, Element, part_dims, waves> keys, values;
    std::byte* page = table[begin];
    if (ahead) keys.load(lane, args.dim, 0, head_of(args, page, args.pages.layer.keys, kv_head), end - begin * chunk);
    float scale = load_scale(lane, args, page, kv_head, end - begin * chunk);
    for (int j = lane.thread(); j < Queries; j += lane.threads()) {
      const int own = (skipped + j) / group, head = kv_head * group + (skipped + j) % group;
      const float slope = args.slopes && j < count ? args.slopes[head] * 1.44269504088896341f : 0.0f;
      const int index = (own_rows.first_row + own) * args.query + head;
      shared.query[j] = {index, row.position + own, slope, own_rows.first_row + own, to_of(lane, args, index)};
      shared.state[j] = {-INFINITY, 0.0f, 0.0f, 0.0f};
    }
    lane.barrier();
    stage_queries(lane, args, shared.query, count, shared.q);
    const auto key_tiles = lane.tiles_a(shared.kv[wave * 16], part_words);
    const auto value_tiles = lane.tiles_transposed_a(&shared.kv[0][wave * 8], part_words);
    const auto query_tiles = lane.tiles_b(shared.q[0], row_words),
               weight_tiles = lane.tiles_b(shared.score[0], score_words);
    FragmentC<L> mix[dim_tiles][columns];
    clear(mix);
    for (int at = begin; at <= last; ++at) {
      const int limit = end - at * chunk;
      const Head own_keys = head_of(args, page, args.pages.layer.keys, kv_head),
                 own_values = head_of(args, page, args.pages.layer.values, kv_head);
      if (ahead) {
        values.load(lane, args.dim, 0, own_values, limit);
      } else {
        keys.load(lane, args.dim, 0, own_keys, limit);
      }
      std::byte* const next = at < last ? table[at + 1] : nullptr;
      FragmentC<L> scores[1][columns];
      clear(scores);
      SLM_ROLLED
      for (int p = 0; p < parts; ++p) {
        lane.barrier();
        keys.store(lane, args.dim, p * part_dims, shared.kv, own_keys, limit);
        if (p == 0) store_scale(lane, shared, scale);
        lane.barrier();
        if (p + 1 < parts) {
          keys.load(lane, args.dim, (p + 1) * part_dims, own_keys, limit);
        } else if (!ahead) {
          values.load(lane, args.dim, 0, own_values, limit);
        }
        score(lane, args, p, key_tiles, query_tiles, count, scores);
      }
      put_scores(lane, shared, count, scores);
      lane.barrier();
      SLM_UNROLL
      for (int p = 0; p < parts; ++p) {
        if (p > 0) lane.barrier();
        values.store(lane, args.dim, p * part_dims, shared.kv, own_values, limit);
        if (p == 0) {
          if (at < last) {
            page = next;
            if (ahead) keys.load(lane, args.dim, 0, head_of(args, page, args.pages.layer.keys, kv_head), limit - chunk);
            scale = load_scale(lane, args, page, kv_head, limit - chunk);
          }
          for (int j = wave * (Lane::width / 8); j < count; j += waves * (Lane::width / 8)) {
            weigh(lane, args, shared, at, j + i / 8);
          }
        }
        lane.barrier();
        if (p + 1 < parts) values.load(lane, args.dim, (p + 1) * part_dims, own_values, limit);
        mix_values(lane, shared, p, value_tiles, weight_tiles, count, mix);
      }
    }

    SLM_UNROLL
    for (int n = 0; n < columns; ++n) {
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) {
        const int j = n * L::columns + L::c_column(i, c);
        if (j >= count) continue;
        const Memory<float> to = split ? args.partial : args.out;
        const std::int64_t first = shared.query[j].to + L::c_row(i, c);
        const float sum = split ? 1.0f : args.total(shared.state[j], shared.query[j].index);
        SLM_UNROLL
        for (int own = 0; own < dim_tiles; ++own) {
          const int d = (wave + own * waves) * 16;
          if (d + L::c_row(i, c) >= args.dim) continue;
          to[first + d] = split ? mix[own][n].value[c] : mix[own][n].value[c] / sum;
        }
      }
    }
    if (split) combine(lane, args, shared, count, kv_head, last_chunk - first_chunk + 1);
  }

 private:
  /// Offset of a query's results.
  template <class Lane>
  static SLM_DEVICE std::int64_t to_of(Lane lane, const Args& args, std::int64_t query) {
    if (args.chunks == 0) return query * args.dim;
    return (query * args.chunks + lane.block_z()) * (args.dim + 2);
  }

  static SLM_DEVICE float scale_at(const Args& args, int position) {
    const int contexts = 1 + position / args.temperature_context;
    return args.scale * fmaf(args.temperature, logf(static_cast<float>(contexts)), 1.0f);
  }

  /// The rows of the block. Called by all threads.
  template <class Lane>
  static SLM_DEVICE StepSequence rows_of_tile(Lane lane, const Args& args, Shared& shared, const QueryTiles& tiles,
                                              int tile) {
    if (!args.sequences) return {tile, args.rows[tile].sequence < 0 ? 0 : 1};
    if (lane.thread() == 0) shared.tile = {0, 0};
    lane.barrier();
    for (int s = lane.thread(); s < static_cast<int>(args.sequences.size); s += lane.threads()) {
      const StepSequence sequence = args.sequences[s];
      const int skipped = (tile - tiles.begin(s, sequence.first_row)) * tiles.rows, left = sequence.rows - skipped;
      if (skipped < 0 || left <= 0) continue;
      shared.tile = {sequence.first_row + skipped, left < tiles.rows ? left : tiles.rows};
    }
    lane.barrier();
    return shared.tile;
  }

  template <class L, int Own, int Columns>
  static SLM_DEVICE void clear(FragmentC<L> (&sums)[Own][Columns]) {
    SLM_UNROLL
    for (int a = 0; a < Own; ++a) {
      SLM_UNROLL
      for (int b = 0; b < Columns; ++b) {
        SLM_UNROLL
        for (int c = 0; c < L::c_floats; ++c) sums[a][b].value[c] = 0;
      }
    }
  }

  static SLM_DEVICE Head head_of(const Args& args, std::byte* page, std::int64_t part, int kv_head) {
    return args.pages.template head<Element>(page, part, kv_head);
  }

  /// Scales of a position: the first threads load the key's, the next ones the value's.
  template <class Lane>
  static SLM_DEVICE float load_scale(Lane lane, const Args& args, std::byte* page, int kv_head, int limit) {
    if constexpr (Head::scaled) {
      const int slot = lane.thread() % chunk;
      if (lane.thread() >= 2 * chunk) return 0;
      const KvLayer& layer = args.pages.layer;
      return head_of(args, page, lane.thread() < chunk ? layer.keys : layer.values, kv_head)
          .scales[slot < limit ? slot : limit];
    } else {
      return 0;
    }
  }
  template <class Lane>
  static SLM_DEVICE void store_scale(Lane lane, Shared& shared, float scale) {
    if constexpr (Head::scaled) {
      if (lane.thread() < 2 * chunk) shared.scale[lane.thread() / chunk][lane.thread() % chunk] = scale;
    }
  }

  /// Adds part p of the dimensions to scores[j][position] = k . q_j; a wave takes 16 positions.
  template <class Lane, class KeyFragments, class QueryFragments, class L, int Columns>
  static SLM_DEVICE void score(Lane lane, const Args& args, int p, KeyFragments keys, QueryFragments queries, int count,
                               FragmentC<L> (&scores)[1][Columns]) {
    SLM_UNROLL
    for (int step = 0; step < part_dims / 16; ++step) {
      const int d = p * part_dims + step * 16;
      if (!ahead && d >= args.dim) continue;
      const FragmentA<L> a = keys.load(step * 8);
      SLM_UNROLL
      for (int n = 0; n < Columns; ++n) {
        if (n * L::columns >= count) continue;
        const FragmentB<L> b = queries.load(n * L::columns * row_words + d / 2);
        scores[0][n] = lane.template mma<half_t>(a, b, scores[0][n]);
        if constexpr (Head::scaled) scores[0][n] = lane.template mma<half_t>(minus_bias<L>(), b, scores[0][n]);
      }
    }
  }

  template <class Lane, class L, int Columns>
  static SLM_DEVICE void put_scores(Lane lane, Shared& shared, int count, const FragmentC<L> (&scores)[1][Columns]) {
    const int i = lane.lane_index(), base = lane.wave() * 16;
    SLM_UNROLL
    for (int n = 0; n < Columns; ++n) {
      if (n * L::columns >= count) continue;
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) {
        shared.score[n * L::columns + L::c_column(i, c)][base + L::c_row(i, c)] = bits_of(scores[0][n].value[c]);
      }
    }
  }

  /// Converts scores of query j to weights, by eight lanes, and merges the chunk into the query's state. A lane has two
  /// groups of four adjacent positions.
  template <class Lane>
  static SLM_DEVICE void weigh(Lane lane, const Args& args, Shared& shared, int at, int j) {
    const int part = lane.lane_index() % 8;
    std::uint32_t* const row = shared.score[j];
    const AttentionQuery query = shared.query[j];
    const int behind = query.position - (at * chunk + 4 * part);  // distance of the query from the first position
    const float scale = Adjusted ? scale_at(args, query.position) : args.scale;
    const unsigned span = args.window == 0 ? 0x7fffffffu : static_cast<unsigned>(args.window);
    float score[8];
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Word4 dots = *reinterpret_cast<const Word4*>(row + 32 * half + 4 * part);
      SLM_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int distance = behind - (32 * half + k);
        float dot = float_of(dots.word[k]);
        if constexpr (Head::scaled) dot *= shared.scale[0][32 * half + 4 * part + k];
        dot *= scale;
        if constexpr (Adjusted) dot = args.cap == 0 ? dot : args.cap * tanhf(dot / args.cap);
        if (args.slopes) dot = fmaf(query.slope, static_cast<float>(-distance), dot);
        score[4 * half + k] = static_cast<unsigned>(distance) < span ? dot : -INFINITY;
      }
    }
    float largest = score[0];
    SLM_UNROLL
    for (int k = 1; k < 8; ++k) largest = fmaxf(largest, score[k]);
    SLM_UNROLL
    for (int step = 4; step > 0; step /= 2) largest = fmaxf(largest, lane.shuffle(largest, lane.lane_index() ^ step));
    lane.wave_barrier();  // weights overwrite the scores
    const float top = largest == -INFINITY ? 0.0f : largest - 8.0f;
    float sum = 0;
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      float weight[4];
      SLM_UNROLL
      for (int k = 0; k < 4; ++k) {
        weight[k] = exp2f(score[4 * half + k] - top);
        sum += weight[k];
        if constexpr (Head::scaled) weight[k] *= shared.scale[1][32 * half + 4 * part + k];
      }
      Word2& to = *reinterpret_cast<Word2*>(row + 16 * half + 2 * part);
      if constexpr (Head::scaled) {
        to = {Lane::template pack2<half_t>(weight[0], weight[1]), Lane::template pack2<half_t>(weight[2], weight[3])};
      } else {  // at most 2^8
        to = {Lane::pack2_within(weight[0], weight[1]), Lane::pack2_within(weight[2], weight[3])};
      }
    }
    SLM_UNROLL
    for (int step = 4; step > 0; step /= 2) sum += lane.shuffle(sum, lane.lane_index() ^ step);
    if (part == 0) shared.state[j].merge(largest, sum);
  }

  /// mix = mix * keep + V^T weights * take, for a wave's dimensions of part p.
  template <class Lane, class ValueFragments, class WeightFragments, class L, int Own, int Columns>
  static SLM_DEVICE void mix_values(Lane lane, Shared& shared, int p, ValueFragments values, WeightFragments weights,
                                    int count, FragmentC<L> (&mix)[Own][Columns]) {
    const int i = lane.lane_index(), first = p * part_tiles;
    FragmentC<L> added[part_tiles][Columns];
    clear(added);
    SLM_UNROLL
    for (int step = 0; step < chunk / 16; ++step) {
      FragmentB<L> b[Columns];
      SLM_UNROLL
      for (int n = 0; n < Columns; ++n) {
        if (n * L::columns < count) b[n] = weights.load(n * L::columns * score_words + step * 8);
      }
      SLM_UNROLL
      for (int own = 0; own < part_tiles; ++own) {
        const FragmentA<L> a = values.load(step * 16 * part_words + own * waves * 8);
        SLM_UNROLL
        for (int n = 0; n < Columns; ++n) {
          if (n * L::columns >= count) continue;
          added[own][n] = lane.template mma<half_t>(a, b[n], added[own][n]);
          if constexpr (Head::scaled) added[own][n] = lane.template mma<half_t>(minus_bias<L>(), b[n], added[own][n]);
        }
      }
    }
    SLM_UNROLL
    for (int n = 0; n < Columns; ++n) {
      if (n * L::columns >= count) continue;
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) {
        const AttentionState& state = shared.state[n * L::columns + L::c_column(i, c)];
        SLM_UNROLL
        for (int own = 0; own < part_tiles; ++own) {
          float& sum = mix[first + own][n].value[c];
          sum = fmaf(sum, state.keep, added[own][n].value[c] * state.take);
        }
      }
    }
  }

  /// The last block to finish its chunk merges all chunks of these queries.
  template <class Lane>
  static SLM_DEVICE void combine(Lane lane, const Args& args, Shared& shared, int count, int kv_head, int chunks) {
    const int width = args.dim + 2;
    if (lane.thread() < count) {
      const AttentionState& state = shared.state[lane.thread()];
      const std::int64_t at = shared.query[lane.thread()].to + args.dim;
      args.partial[at] = state.largest;
      args.partial[at + 1] = state.sum;
    }
    lane.fence();
    lane.barrier();
    int& ticket = args.tickets[kv_head * blocks(args) + lane.block_x()];
    if (lane.thread() == 0) shared.last = Lane::atomic_add(&ticket, 1) == chunks - 1;
    lane.barrier();
    if (shared.last == 0) return;
    lane.fence();
    if (lane.thread() == 0) ticket = 0;
    // Each thread takes four elements of a query, so that it merges the state once for them.
    const int fours = (args.dim + 3) / 4;
    for (int item = lane.thread(); item < count * fours; item += lane.threads()) {
      const std::int64_t query = shared.query[item / fours].index;
      const int d = item % fours * 4, left = args.dim - d;
      AttentionState state{-INFINITY, 0.0f, 0.0f, 0.0f};
      float mix[4] = {0, 0, 0, 0};
      for (int c = 0; c < chunks; ++c) {
        const std::int64_t at = (query * args.chunks + c) * width;
        state.merge(args.partial[at + args.dim], args.partial[at + args.dim + 1]);
        SLM_UNROLL
        for (int k = 0; k < 4; ++k) {
          if (k < left) mix[k] = fmaf(mix[k], state.keep, args.partial[at + d + k] * state.take);
        }
      }
      SLM_UNROLL
      for (int k = 0; k < 4; ++k) {
        if (k < left) args.out[query * args.dim + d + k] = mix[k] / args.total(state, query);
      }
    }
  }
};

}}}
