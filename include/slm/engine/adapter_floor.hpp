// AdapterFloor: what a memory holds of a store's adapters, least recently used first, within a budget in bytes.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "slm/engine/stored_adapter.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class AdapterFloor {
 public:
  /// place: where an adapter says that it is here. budget 0: no limit.
  AdapterFloor(FloorPlace StoredAdapter::*place, std::size_t budget) : place_(place), budget_(budget) {}

  bool holds(const StoredAdapter& one) const { return (one.*place_).held; }
  const std::list<StoredRef>& all() const { return all_; }
  std::size_t used() const { return used_; }
  std::size_t budget() const { return budget_; }

  void put(const StoredRef& one, std::size_t bytes) {
    (*one).*place_ = {true, bytes, all_.insert(all_.end(), one)};
    used_ += bytes;
  }
  void resize(StoredAdapter& one, std::size_t bytes) {
    used_ = used_ - (one.*place_).bytes + bytes;
    (one.*place_).bytes = bytes;
  }
  void remove(StoredAdapter& one) {
    if (!holds(one)) return;
    used_ -= (one.*place_).bytes;
    const auto at = std::exchange(one.*place_, {}).at;
    all_.erase(at);
  }
  /// It was used just now.
  void touch(StoredAdapter& one) {
    if (holds(one)) all_.splice(all_.end(), all_, (one.*place_).at);
  }

  /// Whether so many bytes never fit beside what is pinned.
  bool refuses(std::size_t bytes, const StoredAdapter& one) const {
    if (budget_ == 0) return false;
    for (const StoredRef& other : all_) {
      if (other->pinned && other.get() != &one) bytes += ((*other).*place_).bytes;
    }
    return bytes > budget_;
  }

  /// Those that make room for so many bytes when they go, least recently used first; nothing where there are not
  /// enough. None is in use or pinned. What others wish for goes only if `pressed`, and then last.
  std::optional<std::vector<StoredRef>> victims(std::size_t bytes, bool pressed) const {
    std::vector<StoredRef> found;
    if (budget_ == 0) return found;
    std::size_t left = used_;
    for (const bool wished : {false, true}) {
      if (wished && !pressed) break;
      for (const StoredRef& one : all_) {
        if (left + bytes <= budget_) return found;
        if (one->in_use() || one->pinned || one->wishes.empty() == wished) continue;
        found.push_back(one);
        left -= ((*one).*place_).bytes;
      }
    }
    if (left + bytes <= budget_) return found;
    return std::nullopt;
  }

 private:
  FloorPlace StoredAdapter::*place_;
  std::size_t budget_;
  std::size_t used_ = 0;
  std::list<StoredRef> all_;
};

}}}
