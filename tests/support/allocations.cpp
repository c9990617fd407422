#include "support/allocations.hpp"

// Every form is replaced, so that no memory of the standard library's own operators reaches these.
void* operator new(std::size_t size) { return slm::testing::allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return slm::testing::allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return slm::testing::allocate(size, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
