// Parts of attention: arguments, mapping of rows to blocks, running state of a query, and transfer of keys and values
// from pages to shared memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

static_assert(chunk == page_positions);

/// State of a query after some chunks. Weights are 2^(score - largest) * 2^8, so that halves represent weights far
/// below their smallest normal number.
struct AttentionState {
  float largest, sum;
  float keep, take;  // factors of the previous mix and of the chunk's

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

struct AttentionArgs {
  Memory<const float> q;  // [count, query * dim], rows q_stride elements apart
  KvPages pages;
  Memory<float> out;                     // [count, query * dim]
  Memory<const StepRow> rows;            // [count]
  Memory<const StepSequence> sequences;  // sequences of the rows; empty: each row is a sequence
  Memory<const float> slopes;            // [query], ALiBi; may be empty
  Memory<const float> sinks;             // [query], scores of heads without a value; may be empty
  Memory<float> partial;                 // [count, query, chunks, dim + 2]; used if split
  Memory<int> tickets;                   // [kv * blocks of x], zero between launches; used if split
  int count, query, kv, dim;
  int q_stride;
  int group;                // query heads per KV head
  int window;               // 0: none
  float scale;              // factor of q . k, times log2(e)
  float cap;                // of scaled scores, times log2(e); 0: none
  float temperature;        // see ModelSettings; 0: none
  int temperature_context;  // at least 1
  int chunks;               // blocks along the sequence; 0: one block processes all chunks

  /// The sum of the weights of query `index` of [rows, query], with that of its head's sink.
  SLM_DEVICE float total(const AttentionState& state, std::int64_t index) const {
    if (!sinks) return state.sum;
    return state.sum + exp2f(fmaf(sinks[index % query], 1.44269504088896341f, 8.0f - state.largest));
  }
};

/// Maps rows to blocks of `queries` queries. A block takes several rows of one sequence. If a KV head has more query
/// heads than that, a row takes several blocks.
struct QueryTiles {
  int rows, blocks_of_row;

  SLM_DEVICE QueryTiles(const AttentionArgs& args, int queries) : rows(queries / args.group), blocks_of_row(1) {
    if (rows != 0) return;
    rows = 1;
    blocks_of_row = (args.group + queries - 1) / queries;
  }

  /// The first tile of a sequence. Each earlier sequence has at most one incomplete tile.
  SLM_DEVICE int begin(int sequence, int first_row) const { return first_row / rows + sequence; }

  SLM_DEVICE int blocks(const AttentionArgs& args) const {
    return blocks_of_row * (args.sequences ? begin(static_cast<int>(args.sequences.size), args.count) : args.count);
  }
};

/// A query of a block.
struct AttentionQuery {
  int index;        // index in [rows, query]
  int position;     // of its row
  float slope;      // ALiBi slope times log2(e)
  int row;          // of the step
  std::int64_t to;  // offset of its results in `out`, or in `partial`

  /// Offset of the query in `q`.
  SLM_DEVICE std::int64_t from(const AttentionArgs& args) const {
    return std::int64_t{index} * args.dim + std::int64_t{row} * (args.q_stride - args.query * args.dim);
  }
};

/// Stages queries as halves, padded with zero columns. q [Queries, words of a row]
template <class Lane, int Queries, int Words>
SLM_DEVICE void stage_queries(Lane lane, const AttentionArgs& args, const AttentionQuery (&query)[Queries], int count,
                              std::uint32_t (&q)[Queries][Words]) {
  using L = typename Lane::Matrix;
  constexpr int pairs = Words - 4;
  const int used = (count + L::columns - 1) / L::columns * L::columns;
  if (args.dim % 4 == 0) {
    for (unsigned item = static_cast<unsigned>(lane.thread()); item < static_cast<unsigned>(used * (pairs / 2));
         item += static_cast<unsigned>(lane.threads())) {
      const int j = static_cast<int>(item / (pairs / 2)), d = static_cast<int>(item % (pairs / 2) * 4);
      Word4 four{};
      if (j < count && d < args.dim) four = *args.q.template vector<const Word4>(query[j].from(args) + d);
      *reinterpret_cast<Word2*>(&q[j][d / 2]) = {
          Lane::template pack2<half_t>(float_of(four.word[0]), float_of(four.word[1])),
          Lane::template pack2<half_t>(float_of(four.word[2]), float_of(four.word[3]))};
    }
  } else {
    for (int item = lane.thread(); item < used * pairs; item += lane.threads()) {
      const int j = item / pairs, d = item % pairs * 2;
      const float low = j < count && d < args.dim ? args.q[query[j].from(args) + d] : 0.0f;
      const float high = j < count && d + 1 < args.dim ? args.q[query[j].from(args) + d + 1] : 0.0f;
      q[j][d / 2] = Lane::template pack2<half_t>(low, high);
    }
  }
}

/// A fragment filled with the negative bias of int8 codes.
template <class L>
SLM_DEVICE FragmentA<L> minus_bias() {
  FragmentA<L> a;
  SLM_UNROLL
  for (int w = 0; w < L::a_words; ++w) a.word[w] = 0xe480e480u;  // -1152
  return a;
}

/// Transfers keys or values of a page from device memory to shared memory, eight elements per thread and position: Dim
/// dimensions of each head from `first` on.
/// Positions after the last one are unwritten and are replaced by the last one's values: their weight is zero, but zero
/// times a stale NaN would be NaN. Dimensions that a head lacks are filled with other values: they multiply zeros of
/// the query, or their results are unused.
template <class Lane, class Element, int Dim, int Waves>
struct Carried {
  using Head = KvHead<Element>;
  static constexpr int octets = Dim / 8, at_once = Waves * Lane::width / octets, count = chunk / at_once;
  static constexpr int row_words = Dim / 2 + 4;  // in shared memory: eight rows map to different banks
  typename Head::Eight eight[count];

  SLM_DEVICE void load(Lane lane, int dim, int first, const Head& from, int last) {
    if (dim % 8 != 0) {  // initialised, or the compiler keeps the old values alive
      SLM_UNROLL
      for (int k = 0; k < count; ++k) eight[k] = {};
      return;
    }
    const int octet = first + octet_of(lane) * 8, d = octet < dim ? octet : 0;
    const int most = (last < chunk ? last : chunk - 1) * dim + d, step = at_once * dim;
    int index = position_of(lane) * dim + d;
    SLM_UNROLL
    for (int k = 0; k < count; ++k) {
      eight[k] = from.template eight<Lane>(index < most ? index : most);
      index += step;
    }
  }

  SLM_DEVICE void store(Lane lane, int dim, int first, std::uint32_t (&to)[chunk][row_words], const Head& from,
                        int last) const {
    if (dim % 8 != 0) return store_numbers(lane, dim, first, to, from, last);
    const int octet = octet_of(lane), p = position_of(lane);
    SLM_UNROLL
    for (int k = 0; k < count; ++k) {
      *reinterpret_cast<Word4*>(&to[p + k * at_once][octet * 4]) = Head::template halves_of<Lane>(eight[k]);
    }
  }

 private:
  static SLM_DEVICE int octet_of(Lane lane) { return static_cast<int>(static_cast<unsigned>(lane.thread()) % octets); }
  static SLM_DEVICE int position_of(Lane lane) {
    return static_cast<int>(static_cast<unsigned>(lane.thread()) / octets);
  }

  /// For heads without vector access: element by element, padded with zeros.
  static SLM_DEVICE void store_numbers(Lane lane, int dim, int first, std::uint32_t (&to)[chunk][row_words],
                                       const Head& from, int last) {
    constexpr int words = Dim / 2;
    for (int item = lane.thread(); item < chunk * words; item += lane.threads()) {
      const int slot = item / words, word = item % words, d = first + word * 2, p = slot < last ? slot : last;
      const float low = d < dim ? from.at(p * dim + d) : 0.0f, high = d + 1 < dim ? from.at(p * dim + d + 1) : 0.0f;
      to[slot][word] = Lane::template pack2<half_t>(low, high);
    }
  }
};

}}}
