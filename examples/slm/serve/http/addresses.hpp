// The addresses that a host's name stands for.
#pragma once

#include <string>
#include <vector>

namespace serve {

/// A host without the brackets in which URIs write an address of IPv6.
std::string without_brackets(const std::string& host);

/// All addresses of a host, as text, each once: an address itself, or a name. localhost stands for 127.0.0.1 and ::1,
/// whatever the system's files say. Throws serve.bad-host.
std::vector<std::string> addresses_of(const std::string& host);

/// Whether only this machine reaches each address of the host. Throws serve.bad-host.
bool is_loopback(const std::string& host);

}  // namespace serve
