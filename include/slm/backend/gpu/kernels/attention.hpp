// Causal attention over the KV cache through the matrix unit, for one row and for a prompt, with the same bits.
//
// The sequence is cut into chunks of 64 at absolute positions. A chunk gives a largest score, a sum and a mix of
// values, and chunks are merged in the order of their positions by merge(): in registers when one block walks over all
// of them (prompts), or by the block that comes last when each chunk has a block of its own (few rows).
//
// Positions are rows of operand A, queries are columns: scores = K q, and then out = V^T p. The queries of a block are
// those of some rows of one sequence, of the heads that share one key and value head. A chunk is a page, so where a
// page lies changes an address and nothing else.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/core/types.hpp"

namespace slm::inline v0_1::gpu {

static_assert(chunk == page_positions);

struct AttentionArgs {
  Memory<const float> q;  // [count, query * dim]
  KvPages pages;
  Memory<float> out;                     // [count, query * dim]
  Memory<const StepRow> rows;            // [count]
  Memory<const StepSequence> sequences;  // of the rows; empty: each row is a sequence
  Memory<const float> slopes;            // [query], ALiBi; may be empty
  Memory<float> partial;                 // [count, query, chunks, dim + 2], when split
  Memory<int> tickets;                   // [kv * blocks of x], zero between launches, when split
  int count, query, kv, dim;
  int window;   // 0: none
  float scale;  // of q . k, times log2(e)
  int chunks;   // blocks along the sequence; 0: one block walks over all
};

/// How rows are shared out to blocks of so many queries: some rows of one sequence to a block, or, where more query
/// heads share a key head than that, a row to some blocks.
struct QueryTiles {
  int rows, blocks_of_row;

  SLM_DEVICE QueryTiles(const AttentionArgs& args, int queries)
      : rows(queries / (args.query / args.kv)), blocks_of_row(1) {
    if (rows != 0) return;
    rows = 1;
    blocks_of_row = (args.query / args.kv + queries - 1) / queries;
  }

  /// The first tile of a sequence: behind those of the sequences before it, each of which has one incomplete at most.
  SLM_DEVICE int begin(int sequence, int first_row) const { return first_row / rows + sequence; }

  SLM_DEVICE int blocks(const AttentionArgs& args) const {
    return blocks_of_row * (args.sequences ? begin(static_cast<int>(args.sequences.size), args.count) : args.count);
  }
};

/// What remains of a query after some chunks: weights are 2^(score - largest) * 2^8, so that those a half can hold go
/// far below its smallest normal number.
struct AttentionState {
  float largest, sum;
  float keep, take;  // factors of the mix before, and of the chunk's

  SLM_DEVICE void merge(float chunk_largest, float chunk_sum) {
    const float before = largest;
    keep = take = 0;
    if (chunk_largest > largest) largest = chunk_largest;
    if (largest == -INFINITY) return;
    keep = exp2f(before - largest);
    take = exp2f(chunk_largest - largest);
    sum = fmaf(sum, keep, chunk_sum * take);
  }
};

/// Of pages whose numbers are `Element`.
template <int Dim, int Queries, class Element>
struct Attend {
  using Args = AttentionArgs;
  static constexpr int waves = chunk / 16, row_words = Dim / 2 + 4, score_words = chunk + 4;
  struct Shared {
    alignas(16) std::uint32_t q[Queries][row_words];
    alignas(16) std::uint32_t kv[chunk][row_words];         // keys, then values
    alignas(16) std::uint32_t score[Queries][score_words];  // fp32 scores, then half weights
    AttentionState state[Queries];
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
    constexpr int columns = Queries / L::columns, own_tiles = Dim / 16 / waves;
    const int t = lane.thread(), i = lane.lane_index(), wave = lane.wave(), kv_head = lane.block_y();
    const QueryTiles tiles(args, Queries);
    const StepSequence own_rows = rows_of_tile(lane, args, shared, tiles, lane.block_x() / tiles.blocks_of_row);
    if (own_rows.rows == 0) return;
    const StepRow row = args.rows[own_rows.first_row];
    const PageTable table = args.pages.table(row);
    const int group = args.query / args.kv, skipped = lane.block_x() % tiles.blocks_of_row * Queries;
    const int first = own_rows.first_row * group + skipped, left = own_rows.rows * group - skipped;
    const int count = left < Queries ? left : Queries, ahead = row.position - own_rows.first_row;  // of a row's number
    const int end = ahead + (first + count - 1) / group;  // the last position that any query of the block sees
    const int oldest = args.window == 0 ? 0 : row.position + 1 - args.window;
    const int first_chunk = oldest > 0 ? oldest / chunk : 0, last_chunk = end / chunk;
    const bool split = args.chunks != 0;
    const int begin = split ? first_chunk + lane.block_z() : first_chunk;
    if (begin > last_chunk) return;

    stage_queries(lane, args, shared, kv_head, first, count, group);
    if (t < Queries) shared.state[t] = {-INFINITY, 0.0f, 0.0f, 0.0f};
    FragmentC<L> mix[own_tiles][columns];
    clear(mix);
    for (int at = begin; at <= (split ? begin : last_chunk); ++at) {
      lane.barrier();
      stage_positions(lane, args, shared, page_of(args, table[at], args.pages.layer.keys, kv_head), at, end);
      lane.barrier();
      score(lane, args, shared);
      lane.barrier();
      stage_positions(lane, args, shared, page_of(args, table[at], args.pages.layer.values, kv_head), at, end);
      for (int j = wave; j < count; j += waves) {
        weigh(lane, args, shared, at, j, ahead + (first + j) / group, kv_head * group + (first + j) % group);
      }
      lane.barrier();
      SLM_UNROLL
      for (int own = 0; own < own_tiles; ++own) {
        const int tile = wave + own * waves;
        if (tile * 16 >= args.dim) continue;
        FragmentC<L> part[columns];
        mix_values(lane, shared, tile, part);
        SLM_UNROLL
        for (int n = 0; n < columns; ++n) {
          SLM_UNROLL
          for (int c = 0; c < L::c_floats; ++c) {
            float& sum = mix[own][n].value[c];
            const AttentionState& state = shared.state[n * L::columns + L::c_column(i, c)];
            sum = split ? part[n].value[c] : fmaf(sum, state.keep, part[n].value[c] * state.take);
          }
        }
      }
    }

    SLM_UNROLL
    for (int own = 0; own < own_tiles; ++own) {
      SLM_UNROLL
      for (int n = 0; n < columns; ++n) {
        SLM_UNROLL
        for (int c = 0; c < L::c_floats; ++c) {
          const int d = (wave + own * waves) * 16 + L::c_row(i, c), j = n * L::columns + L::c_column(i, c);
          if (d >= args.dim || j >= count) continue;
          const std::int64_t query = row_of(args, first + j, group, kv_head);
          if (split) {
            args.partial[(query * args.chunks + lane.block_z()) * (args.dim + 2) + d] = mix[own][n].value[c];
          } else {
            args.out[query * args.dim + d] = mix[own][n].value[c] / shared.state[j].sum;
          }
        }
      }
    }
    if (split) combine(lane, args, shared, first, count, group, kv_head, last_chunk - first_chunk + 1);
  }

 private:
  /// What the block works on. Called by all threads.
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

  /// Index of query j among [rows, query].
  static SLM_DEVICE std::int64_t row_of(const Args& args, int j, int group, int kv_head) {
    return std::int64_t{j / group} * args.query + kv_head * group + j % group;
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

  /// Words of a row that take part: whole fragments.
  static SLM_DEVICE int used_words(const Args& args) { return (args.dim + 15) / 16 * 8; }

  template <class Lane>
  static SLM_DEVICE void stage_queries(Lane lane, const Args& args, Shared& shared, int kv_head, int first, int count,
                                       int group) {
    const int words = used_words(args);
    for (int item = lane.thread(); item < Queries * words; item += lane.threads()) {
      const int j = item / words, d = item % words * 2;
      float low = 0, high = 0;
      if (j < count) {
        const std::int64_t from = row_of(args, first + j, group, kv_head) * args.dim + d;
        if (d < args.dim) low = args.q[from];
        if (d + 1 < args.dim) high = args.q[from + 1];
      }
      shared.q[j][d / 2] = Lane::template pack2<half_t>(low, high);
    }
  }

  static SLM_DEVICE KvHead<Element> page_of(const Args& args, std::byte* page, std::int64_t part, int kv_head) {
    return args.pages.template head<Element>(page, part, kv_head);
  }

  /// The keys or values of a page, as halves. Positions behind the last one are zero: they have the weight zero, and
  /// zero times a stale NaN is NaN.
  template <class Lane>
  static SLM_DEVICE void stage_positions(Lane lane, const Args& args, Shared& shared, const KvHead<Element>& from,
                                         int at, int end) {
    const int words = used_words(args);
    if (args.dim % 8 == 0) {
      for (int item = lane.thread(); item < chunk * (words / 4); item += lane.threads()) {
        const int p = item / (words / 4), d = item % (words / 4) * 8;
        const bool there = d < args.dim && at * chunk + p <= end;
        *reinterpret_cast<Word4*>(&shared.kv[p][d / 2]) =
            there ? from.template eight<Lane>(p * args.dim + d, p) : Word4{};
      }
    } else {
      for (int item = lane.thread(); item < chunk * words; item += lane.threads()) {
        const int p = item / words, d = item % words * 2;
        float low = 0, high = 0;
        if (at * chunk + p <= end) {
          if (d < args.dim) low = from.at(p * args.dim + d, p);
          if (d + 1 < args.dim) high = from.at(p * args.dim + d + 1, p);
        }
        shared.kv[p][d / 2] = Lane::template pack2<half_t>(low, high);
      }
    }
  }

  /// score[j][p] = k_p . q_j; a wave takes 16 positions.
  template <class Lane>
  static SLM_DEVICE void score(Lane lane, const Args& args, Shared& shared) {
    using L = typename Lane::Matrix;
    constexpr int columns = Queries / L::columns;
    const int i = lane.lane_index(), base = lane.wave() * 16, offset = L::k_group(i) * L::run / 2;
    FragmentC<L> sums[1][columns];
    clear(sums);
    SLM_UNROLL
    for (int step = 0; step < Dim / 16; ++step) {
      if (step * 16 >= args.dim) continue;
      FragmentA<L> a;
      SLM_UNROLL
      for (int s = 0; s < L::row_slots; ++s) {
        SLM_UNROLL
        for (int pair = 0; pair < L::run / 2; ++pair) {
          a.word[L::a_word(s, pair)] = shared.kv[base + L::a_row(i, s)][step * 8 + offset + pair];
        }
      }
      SLM_UNROLL
      for (int n = 0; n < columns; ++n) {
        FragmentB<L> b;
        SLM_UNROLL
        for (int pair = 0; pair < L::run / 2; ++pair) {
          b.word[pair] = shared.q[n * L::columns + L::b_column(i)][step * 8 + offset + pair];
        }
        sums[0][n] = lane.template mma<half_t>(a, b, sums[0][n]);
      }
    }
    SLM_UNROLL
    for (int n = 0; n < columns; ++n) {
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) {
        shared.score[n * L::columns + L::c_column(i, c)][base + L::c_row(i, c)] = bits_of(sums[0][n].value[c]);
      }
    }
  }

  /// Scores of query j become weights, by one wave, and the query's state takes the chunk in.
  template <class Lane>
  static SLM_DEVICE void weigh(Lane lane, const Args& args, Shared& shared, int at, int j, int row_position, int head) {
    const int i = lane.lane_index();
    float score[2] = {-INFINITY, -INFINITY};  // a lane below 32 has two neighbouring positions
    if (i < chunk / 2) {
      const float slope = args.slopes ? args.slopes[head] * 1.44269504088896341f : 0.0f;
      SLM_UNROLL
      for (int k = 0; k < 2; ++k) {
        const int p = at * chunk + 2 * i + k;
        if (p > row_position || (args.window != 0 && p <= row_position - args.window)) continue;
        const float dot = float_of(shared.score[j][2 * i + k]);
        score[k] = fmaf(slope, static_cast<float>(p - row_position), dot * args.scale);
      }
    }
    lane.wave_barrier();  // weights lie where the scores lay
    const float largest = lane.wave_max(score[0] > score[1] ? score[0] : score[1]);
    float weight[2] = {0, 0};
    if (largest != -INFINITY) {
      weight[0] = exp2f(score[0] - largest + 8.0f);
      weight[1] = exp2f(score[1] - largest + 8.0f);
    }
    const float sum = lane.wave_sum(weight[0] + weight[1]);
    if (i < chunk / 2) shared.score[j][i] = Lane::template pack2<half_t>(weight[0], weight[1]);
    if (i == 0) {
      AttentionState& state = shared.state[j];
      if (args.chunks != 0) {
        state = {largest, sum, 0.0f, 0.0f};
      } else {
        state.merge(largest, sum);
      }
    }
  }

  /// part = V^T p for 16 dimensions.
  template <class Lane, class L, int Columns>
  static SLM_DEVICE void mix_values(Lane lane, Shared& shared, int tile, FragmentC<L> (&part)[Columns],
                                    Where where = Where::here()) {
    const int i = lane.lane_index();
    SLM_UNROLL
    for (int n = 0; n < Columns; ++n) {
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) part[n].value[c] = 0;
    }
    SLM_UNROLL
    for (int step = 0; step < chunk / 16; ++step) {
      const int first = step * 16 + L::k_group(i) * L::run;
      FragmentA<L> a;
      SLM_UNROLL
      for (int s = 0; s < L::row_slots; ++s) {
        const int d = tile * 16 + L::a_row(i, s), shift = d % 2 * 16;
        SLM_UNROLL
        for (int pair = 0; pair < L::run / 2; ++pair) {
          const std::uint32_t low = shared.kv[first + 2 * pair][d / 2] >> shift & 0xffffu;
          const std::uint32_t high = shared.kv[first + 2 * pair + 1][d / 2] >> shift & 0xffffu;
          a.word[L::a_word(s, pair)] = low | high << 16;
        }
      }
      SLM_UNROLL
      for (int n = 0; n < Columns; ++n) {
        FragmentB<L> b;
        SLM_UNROLL
        for (int pair = 0; pair < L::run / 2; ++pair) {
          b.word[pair] = shared.score[n * L::columns + L::b_column(i)][first / 2 + pair];
        }
        part[n] = lane.template mma<half_t>(a, b, part[n], where);
      }
    }
  }

  /// The block that writes its chunk last merges all chunks of these queries.
  template <class Lane>
  static SLM_DEVICE void combine(Lane lane, const Args& args, Shared& shared, int first, int count, int group,
                                 int kv_head, int chunks) {
    const int width = args.dim + 2;
    if (lane.thread() < count) {
      const AttentionState& state = shared.state[lane.thread()];
      const std::int64_t query = row_of(args, first + lane.thread(), group, kv_head);
      const std::int64_t at = (query * args.chunks + lane.block_z()) * width + args.dim;
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
    for (int item = lane.thread(); item < count * args.dim; item += lane.threads()) {
      const std::int64_t query = row_of(args, first + item / args.dim, group, kv_head);
      AttentionState state{-INFINITY, 0.0f, 0.0f, 0.0f};
      float mix = 0;
      for (int c = 0; c < chunks; ++c) {
        const std::int64_t at = (query * args.chunks + c) * width;
        state.merge(args.partial[at + args.dim], args.partial[at + args.dim + 1]);
        mix = fmaf(mix, state.keep, args.partial[at + item % args.dim] * state.take);
      }
      args.out[query * args.dim + item % args.dim] = mix / state.sum;
    }
  }
};

}  // namespace slm::gpu
