// The HTTP/1.1 server of `slm serve`: sockets, limits, timeouts. Its handler produces the answers.
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
  std::string host = "127.0.0.1";  // or several, with commas; listens on all their addresses; [::1] is the same as ::1
  std::uint16_t port = 0;          // 0: any free port
  int io_threads = 2;
  int backlog = 4096;  // connections that the system queues before they are accepted
  HttpLimits limits;
  CorsPolicy cors = {};

  /// The JSON body of the server's own errors: refused requests, exceptions of the handler. Called by every thread.
  std::function<std::string(int status, std::string_view message)> error_body;
};

struct HttpCounters {
  std::size_t connections = 0;     // currently open
  std::size_t requests = 0;        // currently running
  std::size_t streams = 0;         // running requests whose answer is streamed
  std::uint64_t slow_readers = 0;  // total connections closed because their client stopped reading
  std::uint64_t refused = 0;       // total requests and connections refused before a handler
};

class HttpServer {
 public:
  /// Starts listening, so that the port is known; clients wait until start(). Throws slm::Error on failure.
  HttpServer(HttpOptions options, Handler handler);
  ~HttpServer();  // stop()

  std::uint16_t port() const;
  HttpCounters counters() const;

  /// Starts the server's threads and returns. Throws backend.no-thread; the server can then only be destroyed.
  void start();

  /// Accepts no more connections and refuses new requests with 503. Waits until running requests are answered, at most
  /// `timeout`. Returns true if all were.
  bool drain(std::chrono::milliseconds timeout);

  /// Closes every connection, which destroys their exchanges, and ends the threads.
  void stop();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace serve
