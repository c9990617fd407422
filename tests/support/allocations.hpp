// Counts the allocations of a program and lets one fail. It defines operator new, so one source of a program includes
// it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace slm::testing {

inline std::atomic<std::int64_t> allocations = 0;  // of all threads
inline thread_local long fail_at = 0;              // the n-th allocation of this thread from now on throws; 0: none

}  // namespace slm::testing

[[gnu::noinline]] void* operator new(std::size_t size) {
  using slm::testing::fail_at;
  slm::testing::allocations.fetch_add(1, std::memory_order_relaxed);
  if (fail_at > 0 && --fail_at == 0) throw std::bad_alloc{};
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
