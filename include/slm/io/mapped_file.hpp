// MappedFile: a whole file as read-only memory, paged in on access.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/file.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/core/os/memory.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

inline std::atomic<bool> maps_files{true};
inline constexpr const char* check_path = "Check the path and its permissions";

inline Error unreadable(const std::filesystem::path& path, const char* reason, const char* mend = check_path) {
  return Error("io.unreadable", text("cannot read '", path.string(), "': ", reason), mend);
}

/// The Error for a Git LFS pointer or a web page downloaded instead of the file.
inline std::optional<Error> stand_in(const std::filesystem::path& path, std::string_view content) {
  if (content.starts_with("version https://git-lfs")) {
    return Error("io.lfs-pointer", text("'", path.string(), "' is a Git LFS pointer, not the file itself"),
                 "Download the file: git lfs pull in the repository, or with the hub's own client");
  }
  for (const char* page : {"<!DOCTYPE html", "<!doctype html", "<html"}) {
    if (!content.starts_with(page)) continue;
    return Error("io.web-page", text("'", path.string(), "' is a web page, not the file itself"),
                 "Accept the model's terms on its page, sign in, and download the file again; the address of a file "
                 "contains resolve instead of blob");
  }
  return std::nullopt;
}

}  // namespace detail

/// Whether the path exists. Throws io.unreadable if this cannot be determined: the name is too long, or a folder may
/// not be searched.
inline bool file_exists(const std::filesystem::path& path) {
  if (const auto kind = detail::kind_of_path(path.c_str())) return *kind != detail::PathKind::nothing;
  throw detail::unreadable(path, std::strerror(errno));
}

/// The first bytes of a regular file, at most `count`; empty if it cannot be read.
inline std::string first_bytes(const std::filesystem::path& path, std::size_t count) {
  if (detail::kind_of_path(path.c_str()) != detail::PathKind::file) return {};
  const detail::OpenFile file(path.c_str());
  if (file.number() < 0) return {};
  std::string bytes(count, '\0');
  bytes.resize(file.read_at(0, std::as_writable_bytes(std::span(bytes))).value_or(0));
  return bytes;
}

/// Enables or disables file mapping; enabled by default. Disable it in processes that must not install the SIGBUS
/// handler that mapped files need (docs/robustness.md). Files are then read into memory.
inline void set_file_mapping(bool mapped) { detail::maps_files = mapped; }

/// Regular files only: a pipe or device may be endless, and opening it may block or have side effects. A file that
/// cannot be mapped with a guard is read into memory.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path) : path_(path) {
    const auto kind = detail::kind_of_path(path.c_str());
    if (!kind || kind == detail::PathKind::nothing) throw detail::unreadable(path, std::strerror(errno));
    if (kind == detail::PathKind::other) throw detail::unreadable(path, "it is not a regular file");
    const detail::OpenFile file(path.c_str());
    if (file.number() < 0) throw detail::unreadable(path, std::strerror(errno));
    const auto size = file.size();
    if (!size || *size == 0) throw detail::unreadable(path, size ? "it is empty" : "it is not a regular file");
    const detail::BusErrorsTaken taken;
    open(file, static_cast<std::size_t>(*size));
    if (const auto wrong = detail::stand_in(path, text())) throw *wrong;
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

  /// Throws io.file-changed if the file was truncated since it was opened, or a part could not be read: bytes read
  /// before may be zeros. Call it after reading and before using results. It compares the last page.
  void check_unchanged() const {
    const auto end = bytes_.last(last_page_.size());
    if (!std::equal(end.begin(), end.end(), last_page_.begin()) || mapping_.damaged()) throw changed();
  }

 private:
  void open(const detail::OpenFile& file, std::size_t size) {
    if (detail::maps_files) {
      mapping_ = detail::GuardedMapping(file.number(), size);
      if (mapping_.data() == nullptr && errno != 0) {
        throw detail::unreadable(
            path_, std::strerror(errno),
            errno == ENOMEM ? "Free memory, or raise the limit of the process" : detail::check_path);
      }
    }
    if (mapping_.data() == nullptr) return read(file, size);
    bytes_ = {mapping_.data(), size};
    // If a file ends within a page, truncation zeroes the rest of the page without a signal.
    const auto page = detail::page_size();
    const std::span<const std::byte> last = bytes_.subspan((size - 1) / page * page);
    last_page_.assign(last.begin(), last.end());
  }

  void read(const detail::OpenFile& file, std::size_t size) {
    copy_ = std::make_unique_for_overwrite<std::byte[]>(size);
    bytes_ = {copy_.get(), size};
    for (std::size_t done = 0; done < size;) {
      const auto count = file.read_at(done, {copy_.get() + done, size - done});
      if (!count) throw detail::unreadable(path_, std::strerror(errno));
      if (*count == 0) throw changed();
      done += *count;
    }
  }

  Error changed() const {
    return Error("io.file-changed",
                 slm::text("'", path_.string(), "' has changed since it was opened, or a part of it cannot be read"),
                 "Load it again when its download is complete; replace files in use by renaming");
  }

  std::filesystem::path path_;
  detail::GuardedMapping mapping_;
  std::unique_ptr<std::byte[]> copy_;  // if not mapped
  std::span<const std::byte> bytes_;
  std::vector<std::byte> last_page_;  // the original last page of a mapped file
};

/// Calls use(text) with a file's content, valid during the call. Throws io.file-changed.
template <class Use>
auto read_mapped(const std::filesystem::path& path, Use&& use) {
  const detail::BusErrorsTaken taken;
  const MappedFile file(path);
  auto result = std::forward<Use>(use)(file.text());
  file.check_unchanged();
  return result;
}

}}
