// Memory of the operating system: pages, huge pages, and the size of the physical memory.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
// Declared here because <windows.h> defines macros with common names.
struct _MEMORYSTATUSEX;
extern "C" {
__declspec(dllimport) void* __stdcall VirtualAlloc(void*, unsigned long long, unsigned long, unsigned long);
__declspec(dllimport) int __stdcall VirtualFree(void*, unsigned long long, unsigned long);
__declspec(dllimport) int __stdcall GlobalMemoryStatusEx(_MEMORYSTATUSEX*);
}
#else
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#endif

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

#if defined(_WIN32)

inline std::size_t page_size() { return 4096; }

/// Bytes of the physical memory, and how many of them programs may still take; 0: unknown.
struct PhysicalMemory {
  std::uint64_t all = 0, free = 0;
};
inline PhysicalMemory memory_status() {
  struct {
    std::uint32_t size = 64, load = 0;
    std::uint64_t all = 0, free = 0, others[5] = {};
  } status;  // MEMORYSTATUSEX
  static_assert(sizeof status == 64);
  if (GlobalMemoryStatusEx(reinterpret_cast<_MEMORYSTATUSEX*>(&status)) == 0) return {};
  return {status.all, status.free};
}

/// Bytes; 0: unknown.
inline std::uint64_t physical_memory() { return memory_status().all; }
/// Bytes, if the system states them here; 0: unknown.
inline std::uint64_t free_physical_memory() { return memory_status().free; }

/// Zeroed pages that use memory on first access; null: out of memory. huge: prefer huge pages.
inline void* allocate_pages(std::size_t bytes, bool) {
  constexpr unsigned long commit_and_reserve = 0x3000, read_write = 0x04;
  return VirtualAlloc(nullptr, bytes, commit_and_reserve, read_write);
}
inline void free_pages(void* begin, std::size_t) {
  constexpr unsigned long release = 0x8000;
  VirtualFree(begin, 0, release);
}

#else

inline std::size_t page_size() { return static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_PAGESIZE))); }

/// Bytes; 0: unknown.
inline std::uint64_t physical_memory() {
#if defined(_SC_PHYS_PAGES)
  return static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) * page_size();
#else
  return 0;
#endif
}
/// Bytes, if the system states them here; 0: unknown.
inline std::uint64_t free_physical_memory() { return 0; }

inline void* map_pages(std::size_t bytes) {
#if defined(MAP_NORESERVE)
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
  void* const begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

inline void free_pages(void* begin, std::size_t bytes) { ::munmap(begin, bytes); }

/// Zeroed pages that use memory on first access; null: out of memory. huge: prefer huge pages.
inline void* allocate_pages(std::size_t bytes, bool huge) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  if (!huge || bytes < huge_page) return map_pages(bytes);
  void* const mapped = map_pages(bytes + huge_page);
  if (mapped == nullptr) return nullptr;
  // Aligned to a huge page; the mapped memory before and after is unmapped.
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(mapped) % huge_page) % huge_page;
  std::byte* const begin = static_cast<std::byte*>(mapped) + before;
  const std::size_t page = page_size(), whole = (bytes + page - 1) / page * page;
  if (before > 0) ::munmap(mapped, before);
  if (before + whole < bytes + huge_page) ::munmap(begin + whole, bytes + huge_page - before - whole);
#if defined(MADV_HUGEPAGE)
  ::madvise(begin, bytes, MADV_HUGEPAGE);
#endif
  return begin;
}

#endif

}}}
