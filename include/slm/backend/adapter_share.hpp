// A rank's share of an adapter: the parts for the outputs that the rank computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/row_cut.hpp"
#include "slm/lm/adapter.hpp"
#include "slm/ranks/message.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

inline std::size_t element_bytes(const LowRank& change) {
  std::size_t bytes = 0;
  visit_elements(change, [&]<class Element>(Element) { bytes = sizeof(Element); });
  return bytes;
}
inline std::size_t down_bytes(const LowRank& change) {
  return element_bytes(change) * static_cast<std::size_t>(change.rank * change.in);
}
inline std::size_t up_bytes(const LowRank& change) {
  return element_bytes(change) * static_cast<std::size_t>(change.rank * change.out);
}

/// rows_of(product): the rank's rows of the product's weight, ascending. Outputs are renumbered in the rank's order, so
/// a change of adjacent outputs stays contiguous. `down` stays whole, since t = down . x sums over all inputs. If
/// columns_of(product) limits the rank's inputs, t is the partial sum over them, and `up` produces partial outputs.
template <class RowsOf, class ColumnsOf>
Adapter share_of(const Adapter& whole, RowsOf rows_of, ColumnsOf columns_of) {
  Adapter share{.name = whole.name, .digest = whole.digest};
  struct Source {
    const LowRank* change;
    std::int64_t first_input;
    std::vector<RowRange> columns;  // columns of `up`
  };
  std::vector<Source> sources;  // one per remaining change
  for (std::size_t product = 0; product + 1 < whole.begins.size(); ++product) {
    share.begins.push_back(static_cast<int>(share.changes.size()));
    const std::vector<RowRange> rows = rows_of(static_cast<int>(product));
    for (const LowRank& change : whole.of(static_cast<int>(product))) {
      LowRank own = change;
      own.first = own.out = 0;
      const std::optional<RowRange> inputs = columns_of(static_cast<int>(product));
      if (inputs) own.in = inputs->count();
      std::vector<RowRange> columns;
      for (const RowRange& range : rows) {
        const std::int64_t first = std::clamp(change.first, range.first, range.last);
        const std::int64_t last = std::clamp(change.first + change.out, range.first, range.last);
        own.first += first - range.first;  // preceding rows: whole runs, and a part of one
        own.out += last - first;
        if (first < last) columns.push_back({first - change.first, last - change.first});
      }
      if (own.out == 0) continue;
      share.changes.push_back(own);
      sources.push_back({&change, inputs ? inputs->first : 0, std::move(columns)});
    }
  }
  share.begins.push_back(static_cast<int>(share.changes.size()));

  constexpr std::size_t line = 64;
  const auto whole_lines = [](std::size_t bytes) { return (bytes + line - 1) / line * line; };
  for (const LowRank& own : share.changes) share.bytes += whole_lines(down_bytes(own)) + whole_lines(up_bytes(own));
  const std::shared_ptr<std::byte[]> memory = std::make_unique_for_overwrite<std::byte[]>(share.bytes + line);
  std::byte* next = memory.get();
  next += whole_lines(reinterpret_cast<std::uintptr_t>(next)) - reinterpret_cast<std::uintptr_t>(next);
  for (std::size_t i = 0; i < share.changes.size(); ++i) {
    LowRank& own = share.changes[i];
    const auto& [change, first_input, columns] = sources[i];
    const std::size_t size = element_bytes(own);
    for (int j = 0; j < own.rank; ++j) {
      const auto line_of = [&](std::int64_t in) { return size * static_cast<std::size_t>(j * in); };
      std::memcpy(next + line_of(own.in),
                  change->down + line_of(change->in) + size * static_cast<std::size_t>(first_input),
                  size * static_cast<std::size_t>(own.in));
    }
    own.down = std::exchange(next, next + whole_lines(down_bytes(own)));
    std::byte* to = next;
    for (int j = 0; j < own.rank; ++j) {
      const std::byte* const from = change->up + size * static_cast<std::size_t>(j * change->out);
      for (const RowRange& range : columns)
        to = std::copy(from + size * static_cast<std::size_t>(range.first),
                       from + size * static_cast<std::size_t>(range.last), to);
    }
    own.up = std::exchange(next, next + whole_lines(up_bytes(own)));
  }
  share.memory = memory;
  return share;
}

/// Serializes an adapter for another rank.
inline void put_adapter(ranks::Message& message, const Adapter& adapter) {
  message.put_text(adapter.name).put(adapter.digest).put_all(std::span(adapter.begins)).put(adapter.changes.size());
  for (const LowRank& change : adapter.changes) {
    message.put(change).put_all(std::span(change.down, down_bytes(change)));
    message.put_all(std::span(change.up, up_bytes(change)));
  }
}

/// Calls use(adapter) with the adapter that put_adapter() serialized. The adapter is valid during the call only.
template <class Use>
void take_adapter(ranks::Message& message, Use use) {
  Adapter adapter;
  adapter.name = message.take_text();
  adapter.digest = message.take<std::uint64_t>();
  message.take_all(adapter.begins);
  adapter.changes.resize(message.take<std::size_t>());
  std::vector<std::vector<std::byte>> matrices;
  matrices.reserve(2 * adapter.changes.size());
  for (LowRank& change : adapter.changes) {
    change = message.take<LowRank>();
    for (const std::byte** matrix : {&change.down, &change.up}) {
      message.take_all(matrices.emplace_back());
      *matrix = matrices.back().data();
    }
  }
  use(std::as_const(adapter));
}

}}}
