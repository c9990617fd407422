// Landing: pinned host memory for copies from a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "slm/backend/gpu/runtime/host_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Host memory that the device writes directly. A copy to other memory passes through the driver's buffer piece by
/// piece and occupies a host thread.
template <Runtime R>
class Landing {
 public:
  static constexpr std::size_t size = std::size_t{4} << 20;

  explicit Landing(R runtime) : runtime_(std::move(runtime)), memory_(runtime_, size) {}

  /// Copies from device memory and waits for the device.
  void read(typename R::Stream& stream, void* to, const void* from, std::size_t bytes) {
    auto* const there = static_cast<std::byte*>(to);
    const auto* const here = static_cast<const std::byte*>(from);
    for (std::size_t first = 0; first < bytes; first += size) {
      const std::size_t part = std::min(size, bytes - first);
      runtime_.copy_out(memory_.data(), here + first, part, stream);
      runtime_.synchronize(stream);
      std::memcpy(there + first, memory_.data(), part);
    }
  }

 private:
  R runtime_;
  HostBuffer<R> memory_;
};

}}}
