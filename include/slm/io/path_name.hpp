// Names of paths, for messages, server clients and derived files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// A path without a trailing separator or dot: "models/tiny/" and "models/tiny/." become "models/tiny".
inline std::filesystem::path without_end(std::filesystem::path path) {
  while ((!path.has_filename() || path.filename() == ".") && path.has_parent_path() && path != path.root_path()) {
    path = path.parent_path();
  }
  return path;
}

/// The name of a file or folder as the path is written: a link has its own name, not its target's. Paths that end in
/// "/", "." or ".." have the name of the folder. In Hugging Face's cache, models--OWNER--NAME/snapshots/COMMIT, it is
/// NAME.
inline std::string name_of_path(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code failure;
  fs::path whole = fs::absolute(path, failure);
  if (failure) whole = path;
  whole = without_end(std::move(whole));
  if (whole.filename() == "..") {  // only the file system can resolve the parent of a link's target
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

/// The name of a model: the path's name without ".gguf".
inline std::string name_of_model(const std::filesystem::path& path) {
  std::string name = name_of_path(path);
  constexpr std::string_view suffix = ".gguf";
  if (name.size() > suffix.size() && name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

/// The temporary path at which a file or folder is written before it is renamed.
inline std::filesystem::path partial_path(const std::filesystem::path& path) { return without_end(path) += ".partial"; }

}}}
