// Files of the operating system: what a path names, and reading at an offset.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#if defined(_WIN32)
#include <io.h>
#include <share.h>
#else
#include <unistd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "slm/core/macros.hpp"

#if defined(_WIN32)
// Declared here because <windows.h> defines macros with common names.
struct _OVERLAPPED;
extern "C" {
__declspec(dllimport) int __stdcall ReadFile(void*, void*, unsigned long, unsigned long*, _OVERLAPPED*);
__declspec(dllimport) unsigned long __stdcall GetLastError();
}
#endif

namespace slm { inline namespace v0_1 { namespace detail {

#if defined(_WIN32)

using PathChar = wchar_t;
using FileStatus = struct _stat64;
inline int status_of(const PathChar* path, FileStatus& status) { return ::_wstat64(path, &status); }
inline int status_of(int file, FileStatus& status) { return ::_fstat64(file, &status); }
inline bool is_regular(const FileStatus& status) { return (status.st_mode & _S_IFMT) == _S_IFREG; }

/// Negative if it failed; errno is then the reason. Others may write the file meanwhile.
inline int open_file(const PathChar* path) {
  int file = -1;
  ::_wsopen_s(&file, path, _O_RDONLY | _O_BINARY | _O_NOINHERIT, _SH_DENYNO, 0);
  return file;
}
inline void close_file(int file) { ::_close(file); }

/// As POSIX's pread(). It moves the file's own offset, which slm does not use.
inline std::int64_t read_file_at(int file, void* bytes, std::size_t count, std::uint64_t offset) {
  struct {
    std::uintptr_t internal[2] = {0, 0};
    std::uint32_t low = 0, high = 0;
    void* event = nullptr;
  } place;  // OVERLAPPED
  place.low = static_cast<std::uint32_t>(offset);
  place.high = static_cast<std::uint32_t>(offset >> 32);
  void* const handle = reinterpret_cast<void*>(::_get_osfhandle(file));
  unsigned long done = 0;
  if (ReadFile(handle, bytes, static_cast<unsigned long>(count), &done, reinterpret_cast<_OVERLAPPED*>(&place)) != 0) {
    return static_cast<std::int64_t>(done);
  }
  constexpr unsigned long end_of_file = 38;
  if (GetLastError() == end_of_file) return 0;
  errno = EIO;
  return -1;
}

#else

using PathChar = char;
using FileStatus = struct stat;
inline int status_of(const PathChar* path, FileStatus& status) { return ::stat(path, &status); }
inline int status_of(int file, FileStatus& status) { return ::fstat(file, &status); }
inline bool is_regular(const FileStatus& status) { return S_ISREG(status.st_mode); }

/// Negative if it failed; errno is then the reason. Opening does not block, even if a pipe has taken the file's place.
inline int open_file(const PathChar* path) { return ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); }
inline void close_file(int file) { ::close(file); }
inline std::int64_t read_file_at(int file, void* bytes, std::size_t count, std::uint64_t offset) {
  return ::pread(file, bytes, count, static_cast<off_t>(offset));
}

#endif

enum class PathKind { nothing, file, other };  // file: a regular file

/// nullopt: it cannot be determined; errno is the reason.
inline std::optional<PathKind> kind_of_path(const PathChar* path) {
  FileStatus status{};
  if (status_of(path, status) == 0) return is_regular(status) ? PathKind::file : PathKind::other;
  if (errno == ENOENT || errno == ENOTDIR) return PathKind::nothing;
  return std::nullopt;
}

/// An open file.
class OpenFile {
 public:
  explicit OpenFile(const PathChar* path) : number_(open_file(path)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (number_ >= 0) close_file(number_);
  }

  /// Negative if it could not be opened; errno is then the reason.
  int number() const { return number_; }

  /// The size of a regular file.
  std::optional<std::uint64_t> size() const {
    FileStatus status{};
    if (status_of(number_, status) != 0 || !is_regular(status)) return std::nullopt;
    return static_cast<std::uint64_t>(status.st_size);
  }

  /// Reads up to bytes.size() bytes. Returns their number, 0 at the end; nullopt: failed, errno is the reason. Fails on
  /// a pipe.
  std::optional<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
    constexpr std::size_t most = std::size_t{1} << 30;
    for (;;) {
      const auto count = read_file_at(number_, bytes.data(), std::min(most, bytes.size()), offset);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) return std::nullopt;
    }
  }

 private:
  int number_;
};

}}}
