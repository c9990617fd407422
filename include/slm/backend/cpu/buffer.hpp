// PageBuffer: zeroed memory that the operating system hands out page by page, when it is first touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "slm/core/error.hpp"

namespace slm::backend {

/// Owns `size` elements, zero, page-aligned. A KV cache for a long context costs only what is used of it. Small pages
/// on purpose: a huge page per head and layer would make the first token of a long context touch gigabytes.
template <class T>
class PageBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PageBuffer() = default;

  /// Throws backend.out-of-memory.
  explicit PageBuffer(std::size_t size) : size_(size) {
    if (size == 0) return;
    void* address = MAP_FAILED;
    if (size <= std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
      address =
          mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (address == MAP_FAILED) {
      throw Error("backend.out-of-memory", text("could not reserve ", size, " elements of ", sizeof(T), " bytes"),
                  "Lower the context length, or free memory");
    }
    data_ = static_cast<T*>(address);
  }

  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PageBuffer() {
    if (data_ != nullptr) munmap(data_, size_ * sizeof(T));
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace slm::backend
