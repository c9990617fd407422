// Files of the operating system: what a path names, and reading at an offset.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace slm { inline namespace v0_1 { namespace detail {

using PathChar = char;  // as std::filesystem::path::c_str() has it

enum class PathKind { nothing, file, other };  // file: a regular file

/// nullopt: it cannot be determined; errno is the reason.
inline std::optional<PathKind> kind_of_path(const PathChar* path) {
  struct stat status {};
  if (::stat(path, &status) == 0) return S_ISREG(status.st_mode) ? PathKind::file : PathKind::other;
  if (errno == ENOENT || errno == ENOTDIR) return PathKind::nothing;
  return std::nullopt;
}

/// An open file. Opening does not block, even if a pipe has taken the file's place.
class OpenFile {
 public:
  explicit OpenFile(const PathChar* path) : number_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }

  /// Negative if it could not be opened; errno is then the reason.
  int number() const { return number_; }

  /// The size of a regular file.
  std::optional<std::uint64_t> size() const {
    struct stat status {};
    if (::fstat(number_, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return static_cast<std::uint64_t>(status.st_size);
  }

  /// Reads up to bytes.size() bytes. Returns their number, 0 at the end; nullopt: failed, errno is the reason. Fails on
  /// a pipe.
  std::optional<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
    constexpr std::size_t most = std::size_t{1} << 30;
    for (;;) {
      const auto count = ::pread(number_, bytes.data(), std::min(most, bytes.size()), static_cast<off_t>(offset));
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) return std::nullopt;
    }
  }

 private:
  int number_;
};

}}}
