#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <winsock2.h>

#include <array>

#include "http/system.hpp"

namespace serve {

void allow_descriptors(std::size_t) {}  // Windows has no limit of sockets

bool has_left(NativeSocket socket) {
  WSAPOLLFD state{socket, 0, 0};
  return ::WSAPoll(&state, 1, 0) > 0;
}

void answer_unread(NativeSocket socket, std::string_view bytes) {
  u_long without_waiting = 1;
  ::ioctlsocket(socket, FIONBIO, &without_waiting);
  std::array<char, 4 << 10> request;
  ::recv(socket, request.data(), static_cast<int>(request.size()), 0);  // otherwise closing would reset the connection
  ::send(socket, bytes.data(), static_cast<int>(bytes.size()), 0);
  ::shutdown(socket, SD_SEND);
}

SpareDescriptor::SpareDescriptor() = default;
SpareDescriptor::~SpareDescriptor() = default;

bool SpareDescriptor::turn_one_away(NativeSocket listener, std::string_view bytes) {
  const SOCKET connection = ::accept(listener, nullptr, nullptr);
  if (connection == INVALID_SOCKET) return false;
  answer_unread(connection, bytes);
  ::closesocket(connection);
  return true;
}

}  // namespace serve

#endif
