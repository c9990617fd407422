// Kernels that convert between a rank's share and whole rows, for columns of rows and rows of a table.
//
// A rank holds the rows of a weight that a RowCut assigns, and thus those columns of a product: `parts` contiguous
// runs, concatenated in its share. Gathered data is ordered by rank.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/row_cut.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Columns per block.
inline constexpr int columns_at_once = 2048;

/// mine = a rank's columns of whole
struct TakeColumns {
  struct Args {
    Memory<const float> whole;  // [rows, parts * width]
    Memory<float> mine;         // [rows, parts * own]
    RowCut cut;
    int rank, rows;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) {
    const std::int64_t columns = args.cut.parts * args.cut.count(args.rank);
    return {.x = args.rows, .y = static_cast<int>((columns + columns_at_once - 1) / columns_at_once), .threads = 256};
  }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const RowCut& cut = args.cut;
    const std::int64_t row = lane.block_x(), first = cut.first(args.rank), own = cut.count(args.rank);
    const std::int64_t columns = cut.parts * own, begin = std::int64_t{lane.block_y()} * columns_at_once;
    const std::int64_t end = begin + columns_at_once < columns ? begin + columns_at_once : columns;
    for (std::int64_t i = begin + lane.thread(); i < end; i += lane.threads()) {
      args.mine[row * columns + i] = args.whole[(row * cut.parts + i / own) * cut.width + first + i % own];
    }
  }
};

/// out = the ranks' columns, combined
struct SpreadColumns {
  struct Args {
    Memory<const float> all;  // per rank [rows, parts * own]
    Memory<float> out;        // [rows, parts * width], with a stride
    RowCut cut;               // except its `parts`
    int parts, rows, stride;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) {
    const std::int64_t most = args.parts * args.cut.most();
    return {.x = args.rows,
            .y = args.cut.ranks,
            .z = static_cast<int>((most + columns_at_once - 1) / columns_at_once),
            .threads = 256};
  }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const RowCut& cut = args.cut;
    const int rank = lane.block_y();
    const std::int64_t row = lane.block_x(), first = cut.first(rank), own = cut.count(rank);
    const std::int64_t columns = args.parts * own, begin = std::int64_t{lane.block_z()} * columns_at_once;
    const std::int64_t end = begin + columns_at_once < columns ? begin + columns_at_once : columns;
    const std::int64_t share = args.parts * (args.rows * first + row * own);  // offset of this rank's row
    for (std::int64_t i = begin + lane.thread(); i < end; i += lane.threads()) {
      args.out[row * args.stride + i / own * cut.width + first + i % own] = args.all[share + i];
    }
  }
};

/// How ranks divide the outputs of the matrices of experts, whose results have places: see ExpertRows.
struct ExpertCuts {
  RowCut cut, shared;        // of an expert chosen by the router, and of the shared one
  int of_row, chosen_count;  // places of a row, and those of experts chosen by the router

  SLM_DEVICE RowCut of(std::int64_t place) const {
    const bool routed = place % of_row < chosen_count;  // selects values: an address would copy both to the stack
    RowCut one;
    one.tile = routed ? cut.tile : shared.tile;
    one.ranks = routed ? cut.ranks : shared.ranks;
    one.parts = routed ? cut.parts : shared.parts;
    one.width = routed ? cut.width : shared.width;
    return one;
  }
  /// Columns of a rank's results, which suffice for every place.
  SLM_DEVICE std::int64_t columns(int rank) const {
    const std::int64_t chosen = cut.parts * cut.count(rank), others = shared.parts * shared.count(rank);
    return chosen > others ? chosen : others;
  }
};

/// out = the ranks' columns of the results of experts, combined
struct SpreadExperts {
  struct Args {
    Memory<const float> all;  // per rank [places, columns(rank)]
    Memory<float> out;        // [places, stride]
    ExpertCuts cuts;
    int places, stride;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.places, .y = args.cuts.cut.ranks, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int rank = lane.block_y();
    const std::int64_t place = lane.block_x();
    const RowCut cut = args.cuts.of(place);
    std::int64_t share = place * args.cuts.columns(rank);  // offset of this rank's results
    for (int before = 0; before < rank; ++before) share += args.places * args.cuts.columns(before);
    const std::int64_t first = cut.first(rank), own = cut.count(rank), to = place * args.stride;
    for (std::int64_t i = lane.thread(); i < cut.parts * own; i += lane.threads())
      args.out[to + i / own * cut.width + first + i % own] = args.all[share + i];
  }
};

/// x = rows of a table; one rank has read each of them: see Embed.
struct SpreadRows {
  struct Args {
    Memory<const float> all;     // per rank [count, width]; only its own rows are valid
    Memory<const StepRow> rows;  // [count]
    Memory<float> x;             // [count, width]
    TableRows table;
    RowCut cut;
    int width, count;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.count, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t row = lane.block_x(), owner = args.cut.find(args.table.of(args.rows[row])).rank;
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      args.x[row * args.width + k] = args.all[(owner * args.count + row) * args.width + k];
    }
  }
};

}}}
