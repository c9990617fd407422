// Descriptors of the operating system, and single calls of sockets that do not wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace serve {

#if defined(_WIN32)
using NativeSocket = std::uintptr_t;
inline constexpr bool reuses_addresses = false;  // several programs could listen on one port
#else
using NativeSocket = int;
inline constexpr bool reuses_addresses = true;  // of a server that has just ended
#endif

/// Raises the process's limit of open files for these connections. Throws serve.descriptors if that is not allowed.
void allow_descriptors(std::size_t connections);

/// Whether the client has closed its side of the connection.
bool has_left(NativeSocket socket);

/// Sends an answer to a request that is not read, and ends sending.
void answer_unread(NativeSocket socket, std::string_view bytes);

/// A descriptor for the time when no other is left.
class SpareDescriptor {
 public:
  SpareDescriptor();
  SpareDescriptor(const SpareDescriptor&) = delete;
  SpareDescriptor& operator=(const SpareDescriptor&) = delete;
  ~SpareDescriptor();

  /// Accepts one connection with it, sends the answer and closes the connection. Returns true if there was one.
  bool turn_one_away(NativeSocket listener, std::string_view bytes);

 private:
  int descriptor_ = -1;
};

}  // namespace serve
