// What attention is made of: its arguments, how rows are shared out to blocks, what remains of a query after some
// chunks, and keys and values on their way from pages to shared memory.
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
  int group;    // query heads of a key head
  int window;   // 0: none
  float scale;  // of q . k, times log2(e)
  int chunks;   // blocks along the sequence; 0: one block walks over all
};

/// How rows are shared out to blocks of so many queries: some rows of one sequence to a block, or, where more query
/// heads share a key head than that, a row to some blocks.
struct QueryTiles {
  int rows, blocks_of_row;

  SLM_DEVICE QueryTiles(const AttentionArgs& args, int queries) : rows(queries / args.group), blocks_of_row(1) {
    if (rows != 0) return;
    rows = 1;
    blocks_of_row = (args.group + queries - 1) / queries;
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

/// A query of a block.
struct AttentionQuery {
  int index;        // among [rows, query]
  int position;     // of its row
  float slope;      // times log2(e), ALiBi
  std::int64_t to;  // where in `out`, or in `partial`, its numbers go
};

/// A fragment full of what codes of int8 have too much.
template <class L>
SLM_DEVICE FragmentA<L> minus_bias() {
  FragmentA<L> a;
  SLM_UNROLL
  for (int w = 0; w < L::a_words; ++w) a.word[w] = 0xe480e480u;  // -1152
  return a;
}

/// The keys or values of a page between device memory and shared memory: of some positions, eight numbers of a thread.
/// Of positions behind the last one, which nobody has written, that one's stand there: they have the weight zero, and
/// zero times a stale NaN would be NaN. So do others in place of dimensions that a head does not have: they meet zeros
/// of the query, or nobody reads what they give.
template <class Lane, class Element, int Dim, int Waves>
struct Carried {
  using Head = KvHead<Element>;
  static constexpr int octets = Dim / 8, at_once = Waves * Lane::width / octets, count = chunk / at_once;
  static constexpr int row_words = Dim / 2 + 4;  // in shared memory: eight rows lie in banks of their own
  typename Head::Eight eight[count];

  SLM_DEVICE void load(Lane lane, int dim, const Head& from, int last) {
    if (dim % 8 != 0) {  // said to hold nothing, or the compiler keeps what it held before
      SLM_UNROLL
      for (int k = 0; k < count; ++k) eight[k] = {};
      return;
    }
    const int octet = octet_of(lane) * 8, d = octet < dim ? octet : 0;
    const int most = (last < chunk ? last : chunk - 1) * dim + d, step = at_once * dim;
    int index = position_of(lane) * dim + d;
    SLM_UNROLL
    for (int k = 0; k < count; ++k) {
      eight[k] = from.template eight<Lane>(index < most ? index : most);
      index += step;
    }
  }

  SLM_DEVICE void store(Lane lane, int dim, std::uint32_t (&to)[chunk][row_words], const Head& from, int last) const {
    if (dim % 8 != 0) return store_numbers(lane, dim, to, from, last);
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

  /// Of heads that no vector fits: number by number, and zeros.
  static SLM_DEVICE void store_numbers(Lane lane, int dim, std::uint32_t (&to)[chunk][row_words], const Head& from,
                                       int last) {
    constexpr int words = Dim / 2;
    for (int item = lane.thread(); item < chunk * words; item += lane.threads()) {
      const int slot = item / words, d = item % words * 2, p = slot < last ? slot : last;
      const float low = d < dim ? from.at(p * dim + d) : 0.0f, high = d + 1 < dim ? from.at(p * dim + d + 1) : 0.0f;
      to[slot][d / 2] = Lane::template pack2<half_t>(low, high);
    }
  }
};

}}}
