// Lists a folder. std::filesystem iterators are not used: those of libstdc++ terminate the program when an allocation
// fails.
#pragma once

#include <dirent.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/os/path.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

#if defined(_WIN32)

using Folder = _WDIR;
inline Folder* open_folder(const std::filesystem::path& path) { return ::_wopendir(path.c_str()); }
inline auto next_entry(Folder* open) { return ::_wreaddir(open); }
inline void close_folder(Folder* open) { ::_wclosedir(open); }
inline std::string entry_name(const wchar_t* name) { return utf8_text(name); }

#else

using Folder = DIR;
inline Folder* open_folder(const std::filesystem::path& path) { return ::opendir(path.c_str()); }
inline auto next_entry(Folder* open) { return ::readdir(open); }
inline void close_folder(Folder* open) { ::closedir(open); }
inline std::string entry_name(const char* name) { return name; }

#endif

}  // namespace detail

/// Returns the names in a folder, unordered, as UTF-8. On failure, returns the names read so far and sets `failure`.
inline std::vector<std::string> names_in(const std::filesystem::path& folder, std::error_code& failure) {
  struct Close {
    void operator()(detail::Folder* open) const { detail::close_folder(open); }
  };
  std::vector<std::string> names;
  errno = 0;
  const std::unique_ptr<detail::Folder, Close> open(detail::open_folder(folder));
  for (const auto* entry = open ? detail::next_entry(open.get()) : nullptr; entry != nullptr;) {
    std::string name = detail::entry_name(entry->d_name);
    if (name != "." && name != "..") names.push_back(std::move(name));
    errno = 0;
    entry = detail::next_entry(open.get());
  }
  failure = {errno, std::generic_category()};
  return names;
}

}}
