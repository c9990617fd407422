// GuardedMapping on Windows, which refuses to truncate a mapped file. Nothing has to be guarded.
#pragma once

#if defined(_WIN32)

#include <io.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "slm/core/macros.hpp"

// Declared here because <windows.h> defines macros with common names.
struct _SECURITY_ATTRIBUTES;
extern "C" {
__declspec(dllimport) void* __stdcall CreateFileMappingW(void*, _SECURITY_ATTRIBUTES*, unsigned long, unsigned long,
                                                         unsigned long, const wchar_t*);
__declspec(dllimport) void* __stdcall MapViewOfFile(void*, unsigned long, unsigned long, unsigned long,
                                                    unsigned long long);
__declspec(dllimport) int __stdcall UnmapViewOfFile(const void*);
__declspec(dllimport) int __stdcall CloseHandle(void*);
}

namespace slm { inline namespace v0_1 { namespace detail {

/// The first `size` bytes of a file, mapped read-only.
class GuardedMapping {
 public:
  GuardedMapping() = default;

  /// data() is null if mapping fails; errno is then 0: the file can still be read.
  GuardedMapping(int file, std::size_t size) {
    constexpr unsigned long read_only_pages = 0x02, read_view = 0x04;
    void* const handle = reinterpret_cast<void*>(::_get_osfhandle(file));
    const auto bytes = static_cast<std::uint64_t>(size);
    void* const section = CreateFileMappingW(handle, nullptr, read_only_pages, static_cast<unsigned long>(bytes >> 32),
                                             static_cast<unsigned long>(bytes & 0xffffffff), nullptr);
    if (section != nullptr) {
      data_ = static_cast<const std::byte*>(MapViewOfFile(section, read_view, 0, 0, size));
      CloseHandle(section);  // the view keeps it
    }
    errno = 0;
  }

  GuardedMapping(GuardedMapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  GuardedMapping& operator=(GuardedMapping&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~GuardedMapping() {
    if (data_ != nullptr) UnmapViewOfFile(data_);
  }

  /// Null if not mapped.
  const std::byte* data() const { return data_; }
  bool damaged() const { return false; }

 private:
  const std::byte* data_ = nullptr;
};

/// Nothing to do on Windows.
class BusErrorsTaken {
 public:
  BusErrorsTaken() noexcept {}
  BusErrorsTaken(const BusErrorsTaken&) = delete;
  BusErrorsTaken& operator=(const BusErrorsTaken&) = delete;
};

}}}

#endif
