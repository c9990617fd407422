// The HTTP/1.1 server under `slm serve`: sockets, limits, time. What the answers are is its handler's matter.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/cors.hpp"
#include "http/exchange.hpp"
#include "http/limits.hpp"

namespace serve {

struct HttpOptions {
  std::string host = "127.0.0.1";  // all its addresses are listened at; [::1] is the same as ::1
  std::uint16_t port = 0;          // 0: any that is free
  int io_threads = 2;
  int backlog = 4096;  // connections that the system keeps until they are accepted
  HttpLimits limits;
  CorsPolicy cors = {};

  /// The JSON that says what the server itself has to say: requests it refuses, a handler that throws. Every
  /// thread of the server calls it.
  std::function<std::string(int status, std::string_view message)> error_body;
};

struct HttpCounters {
  std::size_t connections = 0;     // open now
  std::size_t requests = 0;        // being answered now
  std::size_t streams = 0;         // of them, those whose answer has begun by HttpOutput::begin
  std::uint64_t slow_readers = 0;  // connections closed because their client stopped reading, ever
  std::uint64_t refused = 0;       // requests and connections that no handler has seen, ever
};

class HttpServer {
 public:
  /// Listens, so that the port is known; clients wait until start(). Throws slm::Error where that cannot be.
  HttpServer(HttpOptions options, Handler handler);
  ~HttpServer();  // stop()

  std::uint16_t port() const;
  HttpCounters counters() const;

  /// Starts the threads that serve, and returns. Throws backend.no-thread; the server can then only be destroyed.
  void start();

  /// Accepts no more connections and refuses new requests with 503; then waits until those that run have been answered,
  /// at most for this time. True if all have.
  bool drain(std::chrono::milliseconds timeout);

  /// Closes every connection, which destroys their exchanges, and ends the threads.
  void stop();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace serve
