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
#include <span>
#include <string_view>
#include <utility>

#include "slm/core/error.hpp"

namespace slm {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw unreadable(path, std::strerror(errno));
    struct stat status {};
    const bool is_file = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (!is_file || status.st_size == 0) {
      ::close(file);
      throw unreadable(path, is_file ? "it is empty" : "it is not a regular file");
    }
    size_ = static_cast<std::size_t>(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int failure = errno;
    ::close(file);
    if (data_ == MAP_FAILED) throw unreadable(path, std::strerror(failure));
    constexpr std::string_view pointer = "version https://git-lfs";
    if (size_ >= pointer.size() && std::memcmp(data_, pointer.data(), pointer.size()) == 0) {
      ::munmap(data_, size_);
      throw Error("io.lfs-pointer", text("'", path.string(), "' is a Git LFS pointer, not the file itself"),
                  "Download the file: git lfs pull in the repository, or with the hub's own client");
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
  static Error unreadable(const std::filesystem::path& path, const char* reason) {
    return Error("io.unreadable", text("cannot read '", path.string(), "': ", reason),
                 "Check the path and its permissions");
  }

  void* data_ = MAP_FAILED;
  std::size_t size_ = 0;
};

}  // namespace slm
