// MappedFile: a whole file as read-only memory, paged in by the operating system as it is touched.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

inline constexpr const char* check_path = "Check the path and its permissions";

inline Error unreadable(const std::filesystem::path& path, const char* reason, const char* mend = check_path) {
  return Error("io.unreadable", text("cannot read '", path.string(), "': ", reason), mend);
}

/// What some downloads leave in the place of a file.
inline std::optional<Error> stand_in(const std::filesystem::path& path, std::string_view content) {
  if (content.starts_with("version https://git-lfs")) {
    return Error("io.lfs-pointer", text("'", path.string(), "' is a Git LFS pointer, not the file itself"),
                 "Download the file: git lfs pull in the repository, or with the hub's own client");
  }
  for (const char* page : {"<!DOCTYPE html", "<!doctype html", "<html"}) {
    if (!content.starts_with(page)) continue;
    return Error(
        "io.web-page", text("'", path.string(), "' is a web page, not the file itself"),
        "Accept the model's terms where it is offered, sign in, and download the file again; a hub's address of "
        "a file says resolve where its page's says blob");
  }
  return std::nullopt;
}

}  // namespace detail

/// Whether there is something of this name. Throws io.unreadable where that cannot be told: a name that is too long, a
/// folder that may not be searched.
inline bool file_exists(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw detail::unreadable(path, std::strerror(errno));
}

/// The first bytes of a regular file, at most `count`; none of what cannot be read.
inline std::string first_bytes(const std::filesystem::path& path, std::size_t count) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // it may have become a pipe meanwhile
  if (file < 0) return {};
  std::string bytes(count, '\0');
  const auto read = ::pread(file, bytes.data(), count, 0);  // fails on a pipe
  ::close(file);
  bytes.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
  return bytes;
}

/// Regular files only: a pipe or a device may have no end, and opening one may wait or do something.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw detail::unreadable(path, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) throw detail::unreadable(path, "it is not a regular file");
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // it may have become a pipe meanwhile
    if (file < 0) throw detail::unreadable(path, std::strerror(errno));
    const bool is_file = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (!is_file || status.st_size == 0) {
      ::close(file);
      throw detail::unreadable(path, is_file ? "it is empty" : "it is not a regular file");
    }
    size_ = static_cast<std::size_t>(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int failure = errno;
    ::close(file);
    if (data_ == MAP_FAILED) {
      throw detail::unreadable(
          path, std::strerror(failure),
          failure == ENOMEM ? "Free memory, or raise the limit of the process" : detail::check_path);
    }
    if (const auto wrong = detail::stand_in(path, {static_cast<const char*>(data_), size_})) {
      ::munmap(data_, size_);
      throw *wrong;
    }
  }

  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, MAP_FAILED)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile() {
    if (data_ != MAP_FAILED) ::munmap(data_, size_);
  }

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = MAP_FAILED;
  std::size_t size_ = 0;
};

}}
