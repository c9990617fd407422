// Resolves host names.
#pragma once

#include <string>
#include <vector>

namespace serve {

/// A host without the brackets of IPv6 addresses in URIs.
std::string without_brackets(const std::string& host);

/// All distinct addresses of a host (an address or a name), or of several with commas between them, as text. localhost
/// is 127.0.0.1 and ::1, whatever the system's files contain. Throws serve.bad-host.
std::vector<std::string> addresses_of(const std::string& host);

/// Whether all addresses of the host are loopback addresses. Throws serve.bad-host.
bool is_loopback(const std::string& host);

}  // namespace serve
