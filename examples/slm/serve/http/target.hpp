// The target of a request in the forms of RFC 9112, section 3.2.
#pragma once

#include <optional>
#include <string_view>

namespace serve {

/// What a request asks for, as views of its target.
struct Target {
  std::string_view path;   // begins with '/', or is "*" for the whole server
  std::string_view query;  // behind '?'
};

/// Splits a target: /path?query; an http or https URI, whose path and query count; or * with OPTIONS. A server with one
/// host has no use for the authority of a URI. Nothing where the target has no such form, or a path with a bad escape.
std::optional<Target> split_target(std::string_view method, std::string_view target);

/// Whether the value of Host, or the authority of a URI, has only bytes that the name of a host and a port may have.
bool is_authority(std::string_view text);

}  // namespace serve
