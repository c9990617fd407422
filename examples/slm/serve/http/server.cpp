#include "http/server.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/connection.hpp"
#include "slm/core/error.hpp"

namespace serve {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

/// Raises the process's limit of open files to what these connections need, as far as it may.
void allow_descriptors(std::size_t connections) {
  constexpr std::size_t others = 64;  // models' files, standard streams, what the system's libraries open
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= connections + others) return;
  const rlim_t wanted = connections + others;
  if (limit.rlim_max < wanted) {
    throw slm::Error(
        "serve.descriptors",
        slm::text("This process may open ", limit.rlim_max, " files, too few for ", connections, " connections"),
        "Raise the limit (ulimit -n), or ask for fewer connections");
  }
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

tcp::endpoint find_host(asio::io_context& context, const std::string& host, std::uint16_t port) {
  error_code error;
  const auto found = tcp::resolver(context).resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    throw slm::Error("serve.bad-host", slm::text("There is no address for the host ", slm::quote(host)),
                     "Give an address of this machine, such as 127.0.0.1");
  }
  return found.begin()->endpoint();
}

[[noreturn]] void refuse_to_listen(const HttpOptions& options, const error_code& error) {
  const auto where = slm::text("port ", options.port, " of ", slm::quote(options.host));
  if (error == asio::error::address_in_use) {
    throw slm::Error("serve.port-taken", slm::text("Another program listens on ", where),
                     "End it, or choose another port; port 0 is any that is free");
  }
  if (error == asio::error::access_denied) {
    throw slm::Error("serve.port-forbidden", slm::text("This user may not listen on ", where),
                     "Choose a port above 1023");
  }
  if (error == boost::system::errc::address_not_available) {
    throw slm::Error("serve.bad-host", slm::text("This machine does not have the address ", slm::quote(options.host)),
                     "Give an address of this machine, such as 127.0.0.1");
  }
  throw slm::Error("serve.cannot-listen", slm::text("The system refuses to listen on ", where, ": ", error.message()),
                   "Choose another address or port");
}

}  // namespace

class HttpServer::Implementation {
 public:
  Implementation(HttpOptions options, Handler handler) {
    allow_descriptors(options.limits.connections);
    state.options = std::move(options);
    state.handler = std::move(handler);
    for (int i = 0; i < std::max(1, state.options.io_threads); ++i) loops.push_back(std::make_unique<Loop>(state));
    acceptor.emplace(loops.front()->context());
    pause.emplace(loops.front()->context());
    listen();
    spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    accept();
  }

  ~Implementation() {
    stop();
    if (spare >= 0) ::close(spare);
  }

  void start() {
    for (const auto& loop : loops) threads.emplace_back([&loop = *loop] { loop.run(); });
  }

  bool drain(std::chrono::milliseconds timeout) {
    const auto end = Clock::now() + timeout;
    state.draining = true;
    asio::post(loops.front()->context(), [this] { stop_accepting(); });
    for (const auto& loop : loops) asio::post(loop->context(), [&loop = *loop] { loop.close_waiting(); });
    while (state.requests > 0 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return state.requests == 0;
  }

  void stop() {
    if (std::exchange(stopped, true)) return;
    asio::post(loops.front()->context(), [this] { stop_accepting(); });
    for (const auto& loop : loops) asio::post(loop->context(), [&loop = *loop] { loop.close(); });
    if (threads.empty()) {  // never started
      for (const auto& loop : loops) loop->run();
    }
    for (auto& thread : threads) thread.join();
    for (const auto& loop : loops) loop->mailbox->close();
  }

  ServerState state;
  std::uint16_t port = 0;

 private:
  void listen() {
    error_code error;
    const auto endpoint = find_host(loops.front()->context(), state.options.host, state.options.port);
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(state.options.backlog, error);
    if (error) refuse_to_listen(state.options, error);
    port = acceptor->local_endpoint().port();
  }

  /// Connections go to the loops in turn.
  void accept() {
    Loop& loop = *loops[accepted++ % loops.size()];
    acceptor->async_accept(loop.context(), [this, &loop](error_code error, tcp::socket socket) {
      if (!acceptor->is_open()) return;
      if (error) {
        if (error == asio::error::no_descriptors) turn_one_away();
        return accept_later();
      }
      accept();
      if (state.connections >= state.options.limits.connections) return tell_unavailable(socket.native_handle());
      asio::post(loop.context(), [&loop, socket = std::move(socket)]() mutable { loop.adopt(std::move(socket)); });
    });
  }

  void accept_later() {
    pause->expires_after(std::chrono::milliseconds(100));
    pause->async_wait([this](error_code) {
      if (acceptor->is_open()) accept();
    });
  }

  /// With the descriptor that was kept for this.
  void turn_one_away() {
    ::close(spare);
    const int connection = ::accept4(acceptor->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      tell_unavailable(connection);
      ::close(connection);
    }
    spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }

  void tell_unavailable(int connection) {
    ++state.refused;
    const auto bytes = state.unavailable();
    std::array<char, 4 << 10> request;
    ::recv(connection, request.data(), request.size(), MSG_DONTWAIT);  // or closing would reset it
    ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(connection, SHUT_WR);
  }

  void stop_accepting() {
    error_code ignored;
    acceptor->close(ignored);
    pause->cancel();
  }

  std::vector<std::unique_ptr<Loop>> loops;
  std::optional<tcp::acceptor> acceptor;    // on the first loop
  std::optional<asio::steady_timer> pause;  // of accepting
  std::size_t accepted = 0;
  int spare = -1;
  std::vector<std::thread> threads;
  bool stopped = false;
};

HttpServer::HttpServer(HttpOptions options, Handler handler)
    : implementation_(std::make_unique<Implementation>(std::move(options), std::move(handler))) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return implementation_->port; }

HttpCounters HttpServer::counters() const {
  const auto& state = implementation_->state;
  return {state.connections, state.requests, state.streams, state.slow_readers, state.refused};
}

void HttpServer::start() { implementation_->start(); }
bool HttpServer::drain(std::chrono::milliseconds timeout) { return implementation_->drain(timeout); }
void HttpServer::stop() { implementation_->stop(); }

}  // namespace serve
