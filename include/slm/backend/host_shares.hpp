// HostShares: combines the ranks' partial results into whole rows, for activations in host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/plan.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/view.hpp"
#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Used by one step at a time.
template <ranks::Communicator C>
class HostShares {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  /// Exists during a step.
  struct Turn {
    explicit Turn(HostShares&) {}
  };

  explicit HostShares(C peers) : peers_(std::move(peers)), rank_(peers_.rank()) {}

  /// Scratch buffer [rows, width] per index; not cleared.
  Rows scratch(int index, std::int64_t rows, std::int64_t width) { return grown(scratch_[index], rows, width); }
  /// Scratch buffer for this rank's outputs.
  Rows mine(std::int64_t rows, std::int64_t width) { return grown(mine_, rows, width); }
  /// Buffer in which results for the host are gathered; bring() copies them there if necessary.
  Rows answers(Rows host) { return host; }
  void bring(Rows, Rows) {}
  /// Waits for the ranks' collective operations.
  void finish() {}

  /// Records a step or a run of its rows.
  template <class Step, class Recorded, class Body>
  void record(Step& step, Recorded& recorded, Body&& body) {
    step.record(recorded, body);
  }

  /// mine [rows, parts * own] = this rank's columns of whole [rows, parts * width].
  void take_own(const RowCut& cut, ConstRows whole, Rows mine) const {
    for (std::int64_t r = 0; r < whole.extent(0); ++r) {
      float* to = mine.row(r);
      for (int part = 0; part < cut.parts; ++part, to += cut.count(rank_))
        std::copy_n(whole.row(r) + part * cut.width + cut.first(rank_), cut.count(rank_), to);
    }
  }

  /// Copies the given columns of one row to scratch buffer `index`.
  const float* take_own(std::span<const RowRange> columns, const float* whole, int index) {
    std::int64_t width = 0;
    for (const RowRange& range : columns) width += range.count();
    const Rows own = scratch(index, 1, width);
    float* to = own.data;
    for (const RowRange& range : columns) to = std::copy(whole + range.first, whole + range.last, to);
    return own.data;
  }

  /// out [rows, parts * width] = the ranks' mine [rows, parts * own], combined.
  void gather(const RowCut& cut, int parts, ConstRows mine, Rows out) {
    const std::int64_t rows = out.extent(0);
    sizes_.clear();
    for (int r = 0; r < peers_.size(); ++r) sizes_.push_back(bytes_of(rows * parts * cut.count(r)));
    const float* from = gather(mine.data, mine.size(), rows * parts * cut.width);
    for (int r = 0; r < peers_.size(); ++r) {
      const std::int64_t count = cut.count(r);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (int part = 0; part < parts; ++part, from += count)
          std::copy_n(from, count, out.row(row) + part * cut.width + cut.first(r));
      }
    }
  }

  /// x += factor * (sum over ranks, in rank order, of mine [rows, width] + bias [width], which may be null). Ranks
  /// without inputs contribute nothing.
  void add(const RowCut& inputs, ConstRows mine, const float* bias, Rows x, float factor = 1) {
    const std::int64_t size = x.size(), width = x.extent(1);
    sizes_.clear();
    for (int r = 0; r < peers_.size(); ++r) sizes_.push_back(inputs.count(r) > 0 ? bytes_of(size) : 0);
    const auto holders = std::count_if(sizes_.begin(), sizes_.end(), [](std::size_t bytes) { return bytes > 0; });
    gather(mine.data, mine.size(), holders * size);
    for (std::int64_t row = 0; row < x.extent(0); ++row) {
      float* const sum = all_.data() + row * width;
      for (std::int64_t holder = 1; holder < holders; ++holder) {
        const float* const more = sum + holder * size;
        for (std::int64_t i = 0; i < width; ++i) sum[i] += more[i];
      }
      float* const to = x.row(row);
      for (std::int64_t i = 0; bias != nullptr && i < width; ++i) sum[i] += bias[i];
      for (std::int64_t i = 0; i < width; ++i) to[i] += factor * sum[i];
    }
  }

  /// x = table rows that may be on any rank; beyond the table, its first row. take() reads the rows that `rows` name by
  /// `index`, less the offset, from this rank's own. The step refers to `rows`; their values may change during the
  /// read.
  template <class Step, class Take>
  void look_up(Step&, const RowCut& cut, bool holds_any, std::span<PlanRow> rows, int PlanRow::*index, int offset,
               Rows x, Take take) {
    const std::vector<PlanRow> before(rows.begin(), rows.end());
    const std::int64_t width = x.extent(1);
    std::vector<int> owners;
    sizes_.assign(static_cast<std::size_t>(peers_.size()), 0);
    for (PlanRow& row : rows) {
      const std::int64_t asked = row.*index + offset;
      const RowCut::Place place = cut.find(asked < cut.parts * cut.width ? asked : 0);
      row.*index = (place.rank == rank_ ? static_cast<int>(place.row) : 0) - offset;
      owners.push_back(place.rank);
      sizes_[static_cast<std::size_t>(place.rank)] += bytes_of(width);
    }
    if (holds_any) take();
    std::copy(before.begin(), before.end(), rows.begin());
    const auto count = static_cast<std::int64_t>(rows.size());
    const Rows own = mine(count, width);
    std::int64_t found = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      if (owners[static_cast<std::size_t>(r)] == rank_) std::copy_n(x.row(r), width, own.row(found++));
    }
    const float* from = gather(own.data, found * width, count * width);
    for (int owner = 0; owner < peers_.size(); ++owner) {
      for (std::int64_t r = 0; r < count; ++r) {
        if (owners[static_cast<std::size_t>(r)] != owner) continue;
        std::copy_n(from, width, x.row(r));
        from += width;
      }
    }
  }

  /// Sends x from the first to the second rank of a pair of stages; the first is the root.
  void hand_on(const C& pair, Rows x) {
    const std::span<float> numbers(x.data, static_cast<std::size_t>(x.size()));
    pair.broadcast(std::as_writable_bytes(numbers), 0);
  }

 private:
  static Rows grown(std::vector<float>& buffer, std::int64_t rows, std::int64_t width) {
    buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(rows * width)));
    return {buffer.data(), rows, width};
  }
  static std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

  /// Gathers `count` floats of this rank and the others' sizes_: `total` floats.
  const float* gather(const float* mine, std::int64_t count, std::int64_t total) {
    grown(all_, 1, total);
    const std::span<const float> share(mine, static_cast<std::size_t>(count));
    const std::span<float> all(all_.data(), static_cast<std::size_t>(total));
    peers_.all_gather(std::as_bytes(share), sizes_, std::as_writable_bytes(all));
    return all.data();
  }

  C peers_;
  int rank_;
  std::vector<float> mine_, all_;  // this rank's outputs; all ranks' outputs, concatenated
  std::map<int, std::vector<float>> scratch_;
  std::vector<std::size_t> sizes_;
};

}}}
