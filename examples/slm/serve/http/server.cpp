#include "http/server.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/addresses.hpp"
#include "http/connection.hpp"
#include "http/system.hpp"
#include "slm/core/error.hpp"
#include "slm/core/start_thread.hpp"

namespace serve {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

/// A listening address. It lives as long as its loop.
struct Listener {
  explicit Listener(asio::io_context& context) : acceptor(context), pause(context) {}

  tcp::acceptor acceptor;
  asio::steady_timer pause;  // delay after a failed accept
};

/// Whether this machine lacks the address or its address family.
bool is_absent(const error_code& error) {
  return error == boost::system::errc::address_not_available ||
         error == boost::system::errc::address_family_not_supported;
}

[[noreturn]] void refuse_to_listen(const HttpOptions& options, const error_code& error) {
  const auto where = slm::text("port ", options.port, " of ", slm::quote(options.host));
  if (error == asio::error::address_in_use) {
    throw slm::Error("serve.port-taken", slm::text("Another program listens on ", where),
                     "End it, or use another port; port 0 is any free port");
  }
  if (error == asio::error::access_denied) {
    throw slm::Error("serve.port-forbidden", slm::text("This user may not listen on ", where), "Use a port above 1023");
  }
  if (error == boost::system::errc::address_not_available) {
    throw slm::Error("serve.bad-host", slm::text("This machine does not have the address ", slm::quote(options.host)),
                     "Use an address of this machine, such as 127.0.0.1");
  }
  throw slm::Error("serve.cannot-listen", slm::text("The system refuses to listen on ", where, ": ", error.message()),
                   "Use another address or port");
}

}  // namespace

class HttpServer::Implementation {
 public:
  Implementation(HttpOptions options, Handler handler) {
    allow_descriptors(options.limits.connections);
    state.options = std::move(options);
    state.handler = std::move(handler);
    for (int i = 0; i < std::max(1, state.options.io_threads); ++i) loops.push_back(std::make_unique<Loop>(state));
    listen();
    for (const auto& listener : listeners) accept(*listener);
  }

  ~Implementation() { stop(); }

  void start() {
    for (const auto& loop : loops) threads.push_back(slm::detail::start_thread([&loop = *loop] { loop.run(); }));
  }

  bool drain(std::chrono::milliseconds timeout) {
    const auto end = Clock::now() + timeout;
    state.draining = true;
    asio::post(loops.front()->context(), [this] { stop_accepting(); });
    for (const auto& loop : loops) asio::post(loop->context(), [&loop = *loop] { loop.close_waiting(); });
    while ((accepting || state.requests > 0) && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return state.requests == 0;
  }

  void stop() {
    if (std::exchange(stopped, true)) return;
    asio::post(loops.front()->context(), [this] { stop_accepting(); });
    for (const auto& loop : loops) asio::post(loop->context(), [&loop = *loop] { loop.close(); });
    for (auto& thread : threads) thread.join();
    for (std::size_t i = threads.size(); i < loops.size(); ++i) loops[i]->run();  // loops whose thread was not started
    for (const auto& loop : loops) loop->mailbox->close();
  }

  ServerState state;
  std::uint16_t port = 0;

 private:
  /// Listens on all addresses of the host that this machine has, with one port.
  void listen() {
    const auto addresses = addresses_of(state.options.host);
    const bool any_port = state.options.port == 0;
    constexpr int most_tries = 16;  // a port that is free on the first address may be in use on the next
    for (int tries = 1;; ++tries) {
      const error_code error = listen_at(addresses);
      if (!error) return;
      if (error != asio::error::address_in_use || !any_port || addresses.size() == 1 || tries == most_tries) {
        refuse_to_listen(state.options, error);
      }
    }
  }

  error_code listen_at(const std::vector<std::string>& addresses) {
    listeners.clear();
    port = state.options.port;
    error_code absent;
    for (const std::string& address : addresses) {
      auto listener = std::make_unique<Listener>(loops.front()->context());
      const tcp::endpoint endpoint(asio::ip::make_address(address), port);
      const error_code error = open(listener->acceptor, endpoint, addresses.size() > 1);
      if (error && !is_absent(error)) return error;
      if (error) {
        absent = error;
        continue;
      }
      port = listener->acceptor.local_endpoint().port();
      listeners.push_back(std::move(listener));
    }
    return listeners.empty() ? absent : error_code();
  }

  /// several: an IPv6 socket then excludes IPv4.
  error_code open(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, bool several) const {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error && reuses_addresses) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && several && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(state.options.backlog, error);
    return error;
  }

  /// Distributes connections over the loops in turn.
  void accept(Listener& listener) {
    Loop& loop = *loops[accepted++ % loops.size()];
    listener.acceptor.async_accept(loop.context(), [this, &listener, &loop](error_code error, tcp::socket socket) {
      if (!listener.acceptor.is_open()) return;
      if (error) {
        if (error == asio::error::no_descriptors &&
            spare.turn_one_away(listener.acceptor.native_handle(), state.unavailable())) {
          ++state.refused;
        }
        return accept_later(listener);
      }
      accept(listener);
      if (state.connections >= state.options.limits.connections) {
        ++state.refused;
        return answer_unread(socket.native_handle(), state.unavailable());
      }
      asio::post(loop.context(), [&loop, socket = std::move(socket)]() mutable { loop.adopt(std::move(socket)); });
    });
  }

  void accept_later(Listener& listener) {
    listener.pause.expires_after(std::chrono::milliseconds(100));
    listener.pause.async_wait([this, &listener](error_code) {
      if (listener.acceptor.is_open()) accept(listener);
    });
  }

  void stop_accepting() {
    error_code ignored;
    for (const auto& listener : listeners) {
      listener->acceptor.close(ignored);
      listener->pause.cancel();
    }
    accepting = false;
  }

  std::vector<std::unique_ptr<Loop>> loops;
  std::vector<std::unique_ptr<Listener>> listeners;  // on the first loop
  std::size_t accepted = 0;
  std::atomic<bool> accepting = true;
  SpareDescriptor spare;
  std::vector<slm::detail::JoinedThread> threads;
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
