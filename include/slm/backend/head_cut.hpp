// HeadCut: which heads of attention each rank computes, and whose keys and values it holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/plan.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 {

/// Neighbouring heads.
struct HeadRange {
  int first = 0;
  int last = 0;  // behind them

  int count() const { return last - first; }
  bool operator==(const HeadRange&) const = default;
};

/// The one rule by which attention is shared out. Queries lie where their keys and values do:
///   a rank holds kv heads, and all queries that read them;
///   more ranks than kv heads: as many ranks hold each of these, and share out its queries; what does not divide holds
///   none.
/// Where a norm is one of all heads, and where there are more ranks than heads of queries, every rank has all heads.
struct HeadCut {
  Heads heads = {};
  bool whole = true;  // on every rank
  int sharing = 1;    // ranks that hold the same kv head
  RowCut query = {};  // of the outputs of attention [heads * dim]
  RowCut kv = {};     // of keys, or of values, [kv_heads * dim]; its ranks are `sharing` of the grid's

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

  /// As an operation takes them that computes a rank's heads only.
  Heads of(int rank) const { return {.query = queries_of(rank).count(), .kv = kv_of(rank).count(), .dim = heads.dim}; }

  /// Where a layer lies in a page that has a rank's kv heads only.
  KvLayer own(int rank, KvLayer layer) const {
    if (whole) return layer;
    const auto held = [&](std::int64_t bytes) { return bytes / heads.kv * kv_of(rank).count(); };
    return {.kind = layer.kind, .keys = held(layer.keys), .values = held(layer.values)};
  }

  /// A rank's rows of the projection [q | k | v], ascending.
  std::vector<RowRange> rows_of(int rank) const {
    const HeadRange q = queries_of(rank), held = kv_of(rank);
    const std::int64_t keys = width(heads.query), values = keys + width(heads.kv);
    std::vector<RowRange> rows;
    if (q.count() > 0) rows.push_back({width(q.first), width(q.last)});
    for (const std::int64_t part : {keys, values}) {
      if (held.count() > 0) rows.push_back({part + width(held.first), part + width(held.last)});
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
