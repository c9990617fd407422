// What is in a folder. The iterators of std::filesystem are not used: libstdc++'s end the program where there is no
// memory for a name.
#pragma once

#include <dirent.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace slm { inline namespace v0_1 {

/// The names in a folder, in any order; what was read of them where that fails.
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
