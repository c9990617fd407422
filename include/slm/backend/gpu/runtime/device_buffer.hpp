// DeviceBuffer: owns device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/core/error.hpp"
#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Wraps a pointer for kernels; null becomes an empty Memory.
template <class T>
Memory<T> memory(T* data, std::int64_t size) {
  return {data, data == nullptr ? 0 : size};
}
/// From the first element of a view to the last one.
template <class T, int Rank>
Memory<T> memory(View<T, Rank> view) {
  std::int64_t size = view.size() == 0 ? 0 : 1;
  for (int axis = 0; size != 0 && axis < Rank; ++axis) size += (view.extent(axis) - 1) * view.stride(axis);
  return {view.data, size};
}

template <class T, Runtime R>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceBuffer() = default;

  /// The memory is not initialised. Throws gpu.out-of-memory.
  DeviceBuffer(R runtime, std::size_t size) : size_(size) {
    if (size == 0) return;
    if (size > SIZE_MAX / 2 / sizeof(T)) {
      throw Error("gpu.out-of-memory", text("could not allocate ", size, " elements of ", sizeof(T), " bytes"),
                  "Lower the context (LoadOptions::context, --context)");
    }
    data_ = static_cast<T*>(runtime.allocate(size * sizeof(T)));
    runtime_.emplace(std::move(runtime));
  }

  DeviceBuffer(DeviceBuffer&& other) noexcept
      : runtime_(std::move(other.runtime_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) runtime_->release(data_);
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  Memory<T> memory() const { return {data_, static_cast<std::int64_t>(size_)}; }

 private:
  std::optional<R> runtime_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}}}
