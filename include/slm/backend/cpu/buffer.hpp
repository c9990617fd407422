// PageBuffer: zeroed memory that the system allocates page by page on first access. HugePages: one such region for many
// weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/core/os/memory.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Page size: 4 KiB, or 2 MiB if the system supports it. On a virtual machine, address translation of small pages costs
/// streaming access a seventh of its bandwidth, and attention's scattered access a quarter.
enum class PageSize { small, huge };

/// Owns `size` zeroed, page-aligned elements. Untouched pages use no memory.
template <class T>
class PageBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PageBuffer() = default;

  /// Throws backend.out-of-memory.
  explicit PageBuffer(std::size_t size, PageSize pages = PageSize::small) : size_(size) {
    if (size == 0) return;
    void* address = nullptr;
    if (size <= std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
      address = slm::detail::allocate_pages(size * sizeof(T), pages == PageSize::huge);
    }
    if (address == nullptr) {
      throw Error("backend.out-of-memory", text("could not allocate ", size, " elements of ", sizeof(T), " bytes"),
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
    if (data_ != nullptr) slm::detail::free_pages(data_, size_ * sizeof(T));
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Contiguous memory for packed weights, so that small matrices and the ends of large ones also use huge pages.
class HugePages {
 public:
  /// Returns `size` zeroed bytes, aligned to a cache line. Pages are freed when all matrices on them are freed. Throws
  /// backend.out-of-memory.
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
  static constexpr std::size_t least = std::size_t{64} << 20;  // bytes of address space; memory is used on write

  explicit HugePages(std::size_t size)
      : left_(std::max(size, least)), memory_(left_, PageSize::huge), next_(memory_.data()) {}

  std::size_t left_;
  PageBuffer<std::byte> memory_;
  std::byte* next_;
};

}}}
