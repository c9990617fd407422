// SplitMatrix, SplitState: a rank's part of a weight, and what the copies of a divided device share.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "slm/backend/adapter_share.hpp"
#include "slm/backend/concept.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/host_shares.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/backend/shared_pages.hpp"
#include "slm/backend/split_commands.hpp"
#include "slm/ranks/grid.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Data of this rank's rows of the experts of a layer: see ExpertTableOf.
template <class Held>
struct SplitExperts {
  ExpertTableOf<Held> held = {};
  std::shared_ptr<const void> biases = {};  // of these rows
};

/// A weight [out, in] of which this rank holds some rows, or none.
template <class Held>
struct SplitMatrix {
  using ExpertTable = SplitExperts<Held>;
  std::int64_t out = 0;
  std::int64_t in = 0;
  int stage = 0;       // stage that multiplies by it
  RowCut cut = {};     // distribution over the ranks of the stage, unless divided by heads
  HeadCut heads = {};  // of queries, keys and values
  RowCut inputs = {};  // distribution of inputs if divided by inputs (sums are reduced over ranks); else width 0
  bool whole = false;  // every rank of the stage has all rows
  bool kept = false;   // outputs are not gathered, because the next matrix is divided by these inputs
  Held held = {};      // empty on other stages, and on surplus ranks

  /// Bytes that this rank reads per product.
  std::int64_t bytes() const { return held.bytes(); }

  /// See DenseMatrix; for this rank's part.
  bool in_file() const requires requires(const Held& matrix) { matrix.in_file(); }
  { return held.in_file(); }
};

/// The object that combines the ranks' results: shares() of a device with separate memory, else HostShares, which
/// documents the interface.
template <Backend B, ranks::Communicator C>
auto shares_of([[maybe_unused]] B& device, const C& peers) {
  if constexpr (B::own_memory) {
    return device.shares(peers);
  } else {
    return HostShares<C>(peers);
  }
}

/// The state that copies of one device share.
template <Backend B, ranks::Communicator C>
struct SplitState {
  SplitState(B device, std::shared_ptr<const ranks::Grid<C>> ranks)
      : grid(std::move(ranks)),
        pages(std::make_shared<SharedPages<B, C>>(device, grid)),
        shares(shares_of(device, grid->peers)) {}

  Adapter share_of(const Adapter& adapter) const {
    const auto rows_of = [this](int product) {
      // Contributions to the embedding are added to whole rows.
      if (product == number_of(AdaptedProduct::embedding) && grid->stage == 0) return std::vector{all_rows};
      const auto held = rows.find(product);
      return held == rows.end() ? std::vector<RowRange>{} : held->second;
    };
    return backend::share_of(adapter, rows_of, [this](int product) {
      const auto held = columns.find(product);
      return held == columns.end() ? std::optional<RowRange>{} : held->second;
    });
  }

  std::unique_lock<std::mutex> lock() { return commands == nullptr ? std::unique_lock(mutex) : commands->lock(); }

  std::shared_ptr<const ranks::Grid<C>> grid;
  std::shared_ptr<SharedPages<B, C>> pages;
  static constexpr RowRange all_rows{0, std::numeric_limits<std::int64_t>::max()};

  bool fast_reduce = false;
  std::map<int, std::vector<RowRange>> rows;  // this rank's rows of each product's weight; absent: none
  std::map<int, RowRange> columns;            // this rank's columns, where divided by inputs
  std::map<int, RowCut> kept;                 // per product without gathering: how the next matrix divides its outputs
  std::shared_ptr<SplitCommands<B, C>> commands;  // null: all ranks make the same calls
  std::mutex mutex;                               // locked during a step if there are no commands
  decltype(shares_of(std::declval<B&>(), std::declval<const C&>())) shares;
};

}}}
