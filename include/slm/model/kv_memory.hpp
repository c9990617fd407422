// KvMemoryOf: a backend's memory for KV cache pages.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/model/page_pool.hpp"

namespace slm { inline namespace v0_1 {

template <Backend B>
class KvMemoryOf final : public KvMemory {
 public:
  explicit KvMemoryOf(B device) : device_(std::move(device)) {}

  std::byte* allocate(const KvPageShape& shape, std::size_t count) override {
    slabs_.push_back(take(device_, shape, count));
    return slabs_.back().data();
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { device_.copy(to, from, bytes); }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) override { device_.read(host, from, bytes); }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) override { device_.write(to, host, bytes); }

 private:
  static auto take(B& device, const KvPageShape& shape, std::size_t count) {
    if constexpr (SharesPages<B>) {
      return device.take_pages(shape, count);
    } else {
      return device.template allocate<std::byte>(count * shape.bytes());
    }
  }

  B device_;
  std::vector<decltype(take(std::declval<B&>(), KvPageShape{}, 0))> slabs_;
};

}}
