// HeadCut: the distribution of attention heads and their KV cache over ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/plan.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 {

/// A range of adjacent heads [first, last).
struct HeadRange {
  int first = 0;
  int last = 0;  // exclusive

  int count() const { return last - first; }
  bool operator==(const HeadRange&) const = default;
};

/// The distribution of attention over ranks. Queries are on the ranks of their keys and values:
///   - a rank holds KV heads and all queries that read them;
///   - with more ranks than KV heads, equally many ranks hold each KV head and divide its queries; surplus ranks hold
///     none.
/// If a norm spans all heads, or there are more ranks than query heads, every rank holds all heads.
struct HeadCut {
  Heads heads = {};
  bool whole = true;  // every rank holds all heads
  int sharing = 1;    // ranks that hold the same KV head
  RowCut query = {};  // rows of the attention output [heads * dim]
  RowCut kv = {};     // rows of keys or of values [kv_heads * dim]; one rank here is `sharing` ranks of the grid

  HeadCut() = default;
  HeadCut(Heads of, QkNorm norm, int ranks) : heads(of), whole(norm == QkNorm::whole || ranks > of.query) {
    if (whole) return;
    const int holders = std::min(ranks, heads.kv);
    sharing = ranks / holders;
    const std::int64_t group = heads.query / heads.kv;
    query = RowCut(width(heads.query), holders * sharing, (sharing == 1 ? group : 1) * heads.dim);
    kv = RowCut(width(heads.kv), holders, heads.dim);
  }

  HeadRange queries_of(int rank) const { return whole ? HeadRange{0, heads.query} : heads_in(query, rank); }
  HeadRange kv_of(int rank) const { return whole ? HeadRange{0, heads.kv} : heads_in(kv, rank / sharing); }

  /// Head counts for an operation on a rank's heads.
  Heads of(int rank) const { return {.query = queries_of(rank).count(), .kv = kv_of(rank).count(), .dim = heads.dim}; }

  /// Offsets of a layer in a page that holds only a rank's KV heads.
  KvLayer own(int rank, KvLayer layer) const {
    if (whole) return layer;
    const auto held = [&](std::int64_t bytes) { return bytes / heads.kv * kv_of(rank).count(); };
    return {.kind = layer.kind, .keys = held(layer.keys), .values = held(layer.values)};
  }

  /// A rank's rows of a projection of the first `parts` parts of [q | k | v], ascending.
  std::vector<RowRange> rows_of(int rank, int parts = 3) const {
    const HeadRange q = queries_of(rank), held = kv_of(rank);
    const std::int64_t keys = width(heads.query), values = keys + width(heads.kv);
    std::vector<RowRange> rows;
    if (q.count() > 0) rows.push_back({width(q.first), width(q.last)});
    for (const std::int64_t part : {keys, values}) {
      if (held.count() > 0 && --parts > 0) rows.push_back({part + width(held.first), part + width(held.last)});
    }
    return rows;
  }

 private:
  std::int64_t width(int count) const { return std::int64_t{count} * heads.dim; }
  HeadRange heads_in(const RowCut& cut, int rank) const {
    return {static_cast<int>(cut.first(rank) / heads.dim), static_cast<int>(cut.first(rank + 1) / heads.dim)};
  }
};

}}
