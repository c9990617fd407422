// Emulated lanes that count their calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_lanes.hpp"

namespace slm::testing {

class CountingLanes : public backend::LanesRuntime<gpu::MmaSync16x8x16> {
  using Base = backend::LanesRuntime<gpu::MmaSync16x8x16>;

 public:
  struct Counts {
    int launches = 0, replays = 0, copies_in = 0, copies_out = 0, copied_bytes = 0, waits = 0, allocations = 0;
    int elsewhere = 0;  // copies to and from host memory that the device cannot access
    bool operator==(const Counts&) const = default;
  };

  explicit CountingLanes(int device = 0) : Base(device), counts_(std::make_shared<Counts>()) {}
  Counts& counts() { return *counts_; }

  template <class K>
  void launch(const typename K::Args& args, Stream& stream) {
    ++counts_->launches;
    Base::template launch<K>(args, stream);
  }
  void replay(const Graph& graph, Stream& stream) {
    ++counts_->replays;
    Base::replay(graph, stream);
  }
  void copy_in(void* to, const void* from, std::size_t bytes, Stream& stream) {
    ++counts_->copies_in;
    counts_->elsewhere += !is_pinned(from, bytes);
    Base::copy_in(to, from, bytes, stream);
  }
  void copy_out(void* to, const void* from, std::size_t bytes, Stream& stream) {
    ++counts_->copies_out;
    counts_->copied_bytes += static_cast<int>(bytes);
    counts_->elsewhere += !is_pinned(to, bytes);
    Base::copy_out(to, from, bytes, stream);
  }
  void synchronize(Stream& stream) {
    ++counts_->waits;
    Base::synchronize(stream);
  }
  using Base::synchronize;
  void* allocate(std::size_t bytes) {
    ++counts_->allocations;
    return Base::allocate(bytes);
  }
  void* allocate_host(std::size_t bytes) {
    void* const memory = Base::allocate_host(bytes);
    pinned_->emplace(memory, bytes);
    return memory;
  }

 private:
  bool is_pinned(const void* memory, std::size_t bytes) const {
    const std::less_equal<const void*> before;
    return std::any_of(pinned_->begin(), pinned_->end(), [&](const auto& one) {
      const auto* const begin = static_cast<const std::byte*>(one.first);
      return before(begin, memory) && before(static_cast<const std::byte*>(memory) + bytes, begin + one.second);
    });
  }

  std::shared_ptr<Counts> counts_;
  std::shared_ptr<std::map<const void*, std::size_t>> pinned_ = std::make_shared<std::map<const void*, std::size_t>>();
};

}  // namespace slm::testing
