// DeviceAdapter: an adapter in device memory, as kernels access it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/core/error.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Maximum total rank of an adapter's changes to one product: 512 each for queries, keys and values.
inline constexpr int most_ranks = 3 * 512;

/// The changes of an adapter to one product.
struct Changes {
  const LowRank* data = nullptr;
  int count = 0;
};

struct DeviceAdapter {
  const Changes* of = nullptr;  // [products]
  std::int64_t products = 0;    // products with larger numbers are unchanged
};

/// Copies an adapter into one block of device memory: matrices aligned to cache lines, then lookup tables at
/// Adapter::table. The block is released with the last handle of the adapter.
template <Runtime R>
Adapter place_adapter(R runtime, const Adapter& adapter) {
  const auto whole_lines = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  std::vector<Changes> products;
  for (std::size_t p = 0; p + 1 < adapter.begins.size(); ++p) {
    const std::span<const LowRank> changes = adapter.of(static_cast<int>(p));
    int ranks = 0;
    for (const LowRank& change : changes) ranks += change.rank;
    if (ranks > most_ranks) {
      throw Error("adapter.rank",
                  text(quote(adapter.name), " changes one product by ", ranks, " ranks in total, expected at most ",
                       most_ranks),
                  "Load the model for the backend cpu, or merge the adapter into it");
    }
    products.push_back({nullptr, static_cast<int>(changes.size())});
  }
  std::vector<std::byte> tables(whole_lines(adapter.changes.size() * sizeof(LowRank)) +
                                whole_lines(products.size() * sizeof(Changes)) + sizeof(DeviceAdapter));
  const auto block = std::make_shared<DeviceBuffer<std::byte, R>>(runtime, adapter.bytes + tables.size());
  const std::byte* const matrices = adapter.changes.empty() ? nullptr : adapter.changes.front().down;
  Adapter placed = adapter;
  for (LowRank& change : placed.changes) {
    for (const std::byte** matrix : {&change.down, &change.up}) *matrix = block->data() + (*matrix - matrices);
  }
  std::size_t end = 0;
  const auto put = [&](const auto* from, std::size_t bytes) {  // returns its future device address
    std::memcpy(&tables[end], from, bytes);
    return reinterpret_cast<decltype(from)>(block->data() + adapter.bytes +
                                            std::exchange(end, end + whole_lines(bytes)));
  };
  const LowRank* const changes = put(placed.changes.data(), placed.changes.size() * sizeof(LowRank));
  for (std::size_t p = 0; p < products.size(); ++p) products[p].data = changes + adapter.begins[p];
  const DeviceAdapter table{put(products.data(), products.size() * sizeof(Changes)),
                            static_cast<std::int64_t>(products.size())};
  placed.table = put(&table, sizeof table);

  // On a separate stream, so that steps continue meanwhile.
  typename R::Stream stream = runtime.make_stream();
  runtime.copy_in(block->data(), matrices, adapter.bytes, stream);
  runtime.copy_in(block->data() + adapter.bytes, tables.data(), tables.size(), stream);
  runtime.synchronize(stream);
  placed.memory = std::shared_ptr<const std::byte[]>(block, block->data());
  return placed;
}

}}}
