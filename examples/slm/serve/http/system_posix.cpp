#if !defined(_WIN32)

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "http/system.hpp"
#include "slm/core/error.hpp"

namespace serve {

void allow_descriptors(std::size_t connections) {
  constexpr std::size_t others = 64;  // model files, standard streams, library files
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= connections + others) return;
  const rlim_t wanted = connections + others;
  if (limit.rlim_max < wanted) {
    throw slm::Error(
        "serve.descriptors",
        slm::text("This process may open ", limit.rlim_max, " files, too few for ", connections, " connections"),
        "Raise the limit (ulimit -n), or set fewer connections");
  }
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool has_left(NativeSocket socket) {
  pollfd state{socket, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0;
}

void answer_unread(NativeSocket socket, std::string_view bytes) {
  std::array<char, 4 << 10> request;
  ::recv(socket, request.data(), request.size(), MSG_DONTWAIT);  // otherwise closing would reset the connection
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
}

SpareDescriptor::SpareDescriptor() : descriptor_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}
SpareDescriptor::~SpareDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool SpareDescriptor::turn_one_away(NativeSocket listener, std::string_view bytes) {
  ::close(descriptor_);
  const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) {
    answer_unread(connection, bytes);
    ::close(connection);
  }
  descriptor_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return connection >= 0;
}

}  // namespace serve

#endif
