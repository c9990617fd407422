// HostBuffer: owns pinned host memory that a device reads and writes directly.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "slm/backend/gpu/runtime/runtime.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

template <Runtime R>
class HostBuffer {
 public:
  /// The memory is not initialised.
  HostBuffer(R runtime, std::size_t size)
      : memory_(static_cast<std::byte*>(runtime.allocate_host(size)), Release{runtime}), size_(size) {}

  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Release {
    R runtime;
    void operator()(std::byte* memory) { runtime.release_host(memory); }
  };

  std::unique_ptr<std::byte, Release> memory_;
  std::size_t size_;
};

}}}
