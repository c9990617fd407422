#include "http/target.hpp"

#include <algorithm>

#include "http/ascii.hpp"
#include "http/escapes.hpp"

namespace serve {

bool is_authority(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) {
    const bool alphanumeric =
        (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    return alphanumeric || std::string_view("-._~%!$&'()*+;=:[]").find(byte) != std::string_view::npos;
  });
}

std::optional<Target> split_target(std::string_view method, std::string_view target) {
  if (target == "*") return method == "OPTIONS" ? std::optional(Target{target, {}}) : std::nullopt;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!begins_with_word(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    const auto authority = target.substr(0, target.find_first_of("/?"));
    if (authority.empty() || authority.front() == ':' || !is_authority(authority)) return std::nullopt;
    target.remove_prefix(authority.size());
    if (target.empty()) return Target{method == "OPTIONS" ? "*" : "/", {}};
    if (target.front() == '?') return Target{"/", target.substr(1)};
    break;
  }
  if (target.empty() || target.front() != '/') return std::nullopt;
  const auto path = target.substr(0, target.find('?'));
  if (!unescaped(path)) return std::nullopt;
  return Target{path, target.substr(std::min(path.size() + 1, target.size()))};
}

}  // namespace serve
