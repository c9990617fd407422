// Matches request paths to routes.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/refusal.hpp"
#include "http/escapes.hpp"

namespace serve {

inline constexpr std::string_view models_path = "/v1/models/";  // followed by the name of a model
inline constexpr std::string_view slot_path = "/slots/";        // followed by the number of a slot

inline std::string_view without_last_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

/// Whether a path, as sent, matches a route. Trailing slashes are ignored, and routes below /v1 also match without it.
inline bool leads_to(std::string_view path, std::string_view route) {
  path = without_last_slashes(path);
  const auto is = [&](std::string_view own) {
    return route == models_path || route == slot_path ? path.starts_with(own) : path == own;
  };
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

/// A parameter of a URI's query, decoded. Throws Refusal.
inline std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    std::string pair{query.substr(0, query.find('&'))};
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const std::size_t sign = std::min(pair.find('='), pair.size());
    if (std::string_view(pair).substr(0, sign) != name) continue;
    std::replace(pair.begin(), pair.end(), '+', ' ');
    if (auto value = unescaped(std::string_view(pair).substr(std::min(sign + 1, pair.size())))) return value;
    throw Refusal(400, "serve.bad-http", "The query has a % that is not followed by two hexadecimal digits.");
  }
  return std::nullopt;
}

}  // namespace serve
