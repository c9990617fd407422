// Request targets in the forms of RFC 9112, section 3.2.
#pragma once

#include <optional>
#include <string_view>

namespace serve {

/// The parts of a target, as views.
struct Target {
  std::string_view path;   // begins with '/', or is "*" for the whole server
  std::string_view query;  // after '?'
};

/// Splits a target: /path?query; an http or https URI, whose path and query are used; or * with OPTIONS. The authority
/// of a URI is ignored. Returns nothing for other forms, or a path with an invalid escape.
std::optional<Target> split_target(std::string_view method, std::string_view target);

/// Whether a Host value, or the authority of a URI, has only bytes allowed in a host name and a port.
bool is_authority(std::string_view text);

}  // namespace serve
