// KvMemoryOf: memory of a backend for pages of keys and values.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/model/kv_pool.hpp"

namespace slm::inline v0_1 {

template <Backend B>
class KvMemoryOf final : public KvMemory {
 public:
  explicit KvMemoryOf(B device) : device_(std::move(device)) {}

  std::byte* allocate(std::size_t bytes) override {
    slabs_.push_back(device_.template allocate<std::byte>(bytes));
    return slabs_.back().data();
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { device_.copy(to, from, bytes); }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) override { device_.read(host, from, bytes); }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) override { device_.write(to, host, bytes); }

 private:
  B device_;
  std::vector<typename B::template Buffer<std::byte>> slabs_;
};

}  // namespace slm
