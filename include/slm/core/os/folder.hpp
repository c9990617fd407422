// Lists a folder. std::filesystem iterators are not used: those of libstdc++ terminate the program when an allocation
// fails.
#pragma once

#include <dirent.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace slm { inline namespace v0_1 {

/// Returns the names in a folder, unordered. On failure, returns the names read so far and sets `failure`.
inline std::vector<std::string> names_in(const std::string& folder, std::error_code& failure) {
  struct Close {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  std::vector<std::string> names;
  errno = 0;
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  for (const dirent* entry = open ? ::readdir(open.get()) : nullptr; entry != nullptr;) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
    entry = ::readdir(open.get());
  }
  failure = {errno, std::generic_category()};
  return names;
}

}}
