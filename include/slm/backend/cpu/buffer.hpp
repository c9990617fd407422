// PageBuffer: zeroed memory that the operating system hands out page by page, when it is first touched. HugePages: the
// same in large pages, for weights.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "slm/core/error.hpp"

namespace slm::inline v0_1::backend {

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
                  "Lower the context (LoadOptions::context, --context), or free memory");
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

/// Memory for packed weights, one matrix right behind the other: so that all of it, the ends of large matrices and the
/// whole of small ones, can lie in huge pages, where the system has them. Looking up small pages costs a stream of
/// weights a seventh of its bandwidth on a virtual machine.
class HugePages {
 public:
  /// `size` zeroed bytes on a cache line of their own. The pages that they share with their neighbours go back when all
  /// of those are gone. Throws backend.out-of-memory.
  static std::shared_ptr<std::byte> take(std::size_t size) {
    static std::mutex mutex;
    static std::weak_ptr<HugePages> current;
    const std::lock_guard lock(mutex);
    std::shared_ptr<HugePages> pages = current.lock();
    if (pages == nullptr || pages->left_ < size) current = pages = std::shared_ptr<HugePages>(new HugePages(size));
    std::byte* const begin = pages->next_;
    const std::size_t whole_lines = std::min(pages->left_, (size + line - 1) / line * line);
    pages->next_ += whole_lines;
    pages->left_ -= whole_lines;
    return {std::move(pages), begin};
  }

 private:
  static constexpr std::size_t line = 64;
  static constexpr std::size_t page = std::size_t{2} << 20;
  static constexpr std::size_t least = std::size_t{64} << 20;  // of addresses: memory is used when it is written

  explicit HugePages(std::size_t size)
      : left_(std::max(size, least)),
        memory_(size < std::numeric_limits<std::size_t>::max() / 2 ? left_ + page : size) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    next_ = memory_.data() + (page - address % page) % page;
    madvise(next_, left_, MADV_HUGEPAGE);
  }

  std::size_t left_;
  PageBuffer<std::byte> memory_;
  std::byte* next_ = nullptr;
};

}  // namespace slm::backend
