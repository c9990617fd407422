// SharedPages: KV cache pages distributed over ranks; each rank holds its layers and heads of every page. All ranks
// know a page by a rank-independent handle, a synthetic address that is never dereferenced.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/core/error.hpp"
#include "slm/ranks/grid.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Thread-safe, except that collective calls must not overlap.
template <Backend B, ranks::Communicator C>
class SharedPages {
 public:
  SharedPages(B device, std::shared_ptr<const ranks::Grid<C>> grid)
      : device_(std::move(device)), grid_(std::move(grid)) {}

  /// Returns an unused handle for pages of `bytes` bytes.
  std::byte* new_name(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t name = next_name_;
    next_name_ += (bytes / alignment + 1) * alignment;
    return reinterpret_cast<std::byte*>(name);
  }

  void hold(const std::byte* name, KvPageShape shape, std::size_t count) {
    const auto part = shape.part_of(grid_->stage, grid_->stages, grid_->lane, grid_->lanes);
    auto bytes = device_.template allocate<std::byte>(part.bytes() * count);
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(name, Slab{std::move(shape), part, count, std::move(bytes)});
  }
  void give_up(const std::byte* name) {
    const std::lock_guard lock(mutex_);
    held_.erase(name);
  }

  /// Returns the address of this rank's part of a page; null if it has none or the page is null. Throws
  /// ranks.out-of-step.
  std::byte* own(const std::byte* page) {
    if (page == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    auto [slab, index] = find(page);
    return slab.part.bytes() == 0 ? nullptr : slab.own_page(index);
  }

  std::size_t bytes_of(const std::byte* page) {
    const std::lock_guard lock(mutex_);
    return find(page).slab.shape.bytes();
  }

  /// Byte offset of this rank's part in a whole page.
  std::size_t part_begins(const std::byte* page) {
    const std::lock_guard lock(mutex_);
    const KvPageShape::Part part = find(page).slab.part;
    return part.first * part.layer_bytes;
  }

  void copy(std::byte* to, const std::byte* from) {
    const std::lock_guard lock(mutex_);
    auto [source, i] = find(from);
    auto [target, k] = find(to);
    const std::size_t bytes = source.part.bytes();
    if (bytes > 0) device_.copy(target.own_page(k), source.own_page(i), bytes);
  }

  /// contents: of the whole page.
  void write(std::byte* page, const std::byte* contents) {
    const std::lock_guard lock(mutex_);
    auto [slab, i] = find(page);
    if (slab.part.bytes() == 0) return;
    std::vector<std::byte> own(slab.part.bytes());
    slab.part.for_each_run([&](std::size_t whole, std::size_t part, std::size_t bytes) {
      std::memcpy(own.data() + part, contents + whole, bytes);
    });
    device_.write(slab.own_page(i), own.data(), own.size());
  }

  /// Collective: reads the whole page on every rank. Parts held by several ranks come from the first of them.
  void read(std::byte* contents, const std::byte* page) {
    const std::lock_guard lock(mutex_);
    auto [slab, i] = find(page);
    const int lanes = grid_->lanes;
    std::vector<KvPageShape::Part> parts;
    std::vector<std::size_t> sizes;
    for (int rank = 0; rank < grid_->all.size(); ++rank) {
      const int lane = grid_->lane_of(rank);
      parts.push_back(slab.shape.part_of(grid_->stage_of(rank), grid_->stages, lane, lanes));
      const bool again = lane > 0 && parts.back().kv == parts[parts.size() - 2].kv;
      sizes.push_back(again ? 0 : parts.back().bytes());
    }
    std::vector<std::byte> mine(sizes[static_cast<std::size_t>(grid_->all.rank())]), all(slab.shape.bytes());
    if (!mine.empty()) device_.read(mine.data(), slab.own_page(i), mine.size());
    grid_->all.all_gather(mine, sizes, all);
    const std::byte* from = all.data();
    for (std::size_t rank = 0; rank < sizes.size(); from += sizes[rank++]) {
      if (sizes[rank] == 0) continue;
      parts[rank].for_each_run([&](std::size_t whole, std::size_t part, std::size_t bytes) {
        std::memcpy(contents + whole, from + part, bytes);
      });
    }
  }

 private:
  static constexpr std::uintptr_t alignment = 4096;

  struct Slab {
    KvPageShape shape;
    KvPageShape::Part part;
    std::size_t count;
    typename B::template Buffer<std::byte> own;

    std::byte* own_page(std::size_t index) { return own.data() + index * part.bytes(); }
  };
  struct Place {
    Slab& slab;
    std::size_t index;  // index of a page
  };

  Place find(const std::byte* page) {
    auto after = held_.upper_bound(page);
    if (after != held_.begin()) {
      auto& [name, slab] = *--after;
      const auto before = reinterpret_cast<std::uintptr_t>(page) - reinterpret_cast<std::uintptr_t>(name);
      const std::size_t index = before / std::max<std::size_t>(slab.shape.bytes(), 1);
      if (index < slab.count) return {slab, index};
    }
    throw Error("ranks.out-of-step", "expected a page of this rank, found an unknown handle from rank 0",
                "Start the same program on every rank");
  }

  B device_;
  std::shared_ptr<const ranks::Grid<C>> grid_;
  std::mutex mutex_;                                    // guards the members below
  std::map<const std::byte*, Slab, std::less<>> held_;  // by handle
  std::uintptr_t next_name_ = alignment;
};

}}}
