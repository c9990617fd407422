// Atomic writing of files, and removal of folders.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "slm/core/error.hpp"
#include "slm/core/os/folder.hpp"
#include "slm/io/path_name.hpp"

namespace slm { inline namespace v0_1 {

inline Error unwritable(const std::filesystem::path& path, const std::error_code& reason) {
  return Error("io.unwritable", text("cannot write '", path.string(), "': ", reason.message()),
               "Check the folder, its permissions and the free space");
}

/// Calls fill(stream) on a temporary file next to `path`, then renames it. A full disk or an interruption therefore
/// leaves no incomplete file. Throws io.unwritable, and the exceptions of fill.
template <class Fill>
void write_file_whole(const std::filesystem::path& path, Fill&& fill) {
  const std::filesystem::path temporary = detail::partial_path(path);
  errno = 0;
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  try {
    if (file) fill(file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  file.close();
  const int reason = errno;
  std::error_code failure;
  if (file) std::filesystem::rename(temporary, path, failure);
  if (!file || failure) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    const std::string why = failure ? failure.message() : std::strerror(reason);
    throw Error("io.unwritable", text("cannot write '", path.string(), "'", failure || reason != 0 ? ": " + why : ""),
                "Check the folder, its permissions, the free space and the limit of file sizes");
  }
}

inline void write_text_file(const std::filesystem::path& path, std::string_view content) {
  write_file_whole(
      path, [&](std::ostream& file) { file.write(content.data(), static_cast<std::streamsize>(content.size())); });
}

/// Removes a folder with its contents without following links. Entries that cannot be removed remain.
inline void remove_tree(const std::filesystem::path& path) noexcept {
  namespace fs = std::filesystem;
  std::error_code failure;
  try {
    if (fs::is_directory(fs::symlink_status(path, failure))) {
      for (const std::string& name : names_in(path, failure)) remove_tree(path / path_of(name));
    }
  } catch (const std::bad_alloc&) {
  }
  fs::remove(path, failure);
}

}}
