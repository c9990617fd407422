// The name of what a path leads to, for messages, for the server's clients and for files that are made of a model.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace slm { inline namespace v0_1 { namespace detail {

/// A path without what follows its last name: "models/tiny/" and "models/tiny/." are "models/tiny".
inline std::filesystem::path without_end(std::filesystem::path path) {
  while ((!path.has_filename() || path.filename() == ".") && path.has_parent_path() && path != path.root_path()) {
    path = path.parent_path();
  }
  return path;
}

/// The name of the file or folder that a path means, as the path is written: a link has its own name, not that of its
/// target. A folder has its name too where the path ends in "/", "." or "..". A folder of Hugging Face's cache,
/// models--OWNER--NAME/snapshots/COMMIT, has the NAME of its model.
inline std::string name_of_path(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code failure;
  fs::path whole = fs::absolute(path, failure);
  if (failure) whole = path;
  whole = without_end(std::move(whole));
  if (whole.filename() == "..") {  // only the file system knows what is above the target of a link
    if (fs::path resolved = fs::canonical(whole, failure); !failure) whole = std::move(resolved);
  }
  whole = without_end(whole.lexically_normal());
  const fs::path above = whole.parent_path();
  const std::string model = above.parent_path().filename().string();
  if (above.filename() == "snapshots" && model.starts_with("models--") && fs::is_directory(whole, failure)) {
    return model.substr(model.rfind("--") + 2);
  }
  return whole.filename().string();
}

/// The name of the model that a path means: that of the path without ".gguf".
inline std::string name_of_model(const std::filesystem::path& path) {
  std::string name = name_of_path(path);
  constexpr std::string_view suffix = ".gguf";
  if (name.size() > suffix.size() && name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

/// Where a file or a folder is made before it appears under its own path.
inline std::filesystem::path partial_path(const std::filesystem::path& path) {
  return without_end(path).string() + ".partial";
}

}}}
