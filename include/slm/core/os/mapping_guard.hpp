// GuardedMapping: a file mapping that survives truncation of the file. Reads of missing pages return zeros and mark the
// mapping as damaged.
#pragma once

#include <cstddef>
#include <span>

#if defined(_WIN32)
#include "slm/core/os/mapping_windows.hpp"
#else
#include "slm/core/os/mapping_posix.hpp"
#endif

namespace slm { inline namespace v0_1 { namespace detail {

/// Touches every page. Without this, a system call that reads missing pages of the mapping would fail.
inline void read_pages(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t smallest_page = 4096;
  for (std::size_t i = 0; i < bytes.size(); i += smallest_page) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[i]));
  }
  if (!bytes.empty()) static_cast<void>(*static_cast<const volatile std::byte*>(&bytes.back()));
}

}}}
