// Matches request paths to routes.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "api/refusal.hpp"
#include "http/escapes.hpp"

namespace serve {

inline constexpr std::string_view models_path = "/v1/models/";  // followed by the name of a model

inline std::string_view without_last_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

/// Whether a path, as sent, matches a route. Trailing slashes are ignored, and routes below /v1 also match without it.
inline bool leads_to(std::string_view path, std::string_view route) {
  path = without_last_slashes(path);
  const auto is = [&](std::string_view own) { return route == models_path ? path.starts_with(own) : path == own; };
  constexpr std::string_view root = "/v1";
  return is(route) || (route.starts_with("/v1/") && is(route.substr(root.size())));
}

/// The model name at the end of a path below models_path. Throws Refusal.
inline std::string name_in(std::string_view path) {
  constexpr std::string_view before = "/models/";
  path = without_last_slashes(path);
  if (auto name = unescaped(path.substr(path.find(before) + before.size()))) return std::move(*name);
  throw Refusal(400, "serve.bad-http", "The path has a % that is not followed by two hexadecimal digits.");
}

}  // namespace serve
