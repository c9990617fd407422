// What clients of the server may take.
#pragma once

#include <chrono>
#include <cstddef>

namespace serve {

struct HttpLimits {
  using Time = std::chrono::milliseconds;

  // Of a request.
  std::size_t line_bytes = 8 << 10;  // of its first line
  std::size_t head_bytes = 16 << 10;
  std::size_t fields = 64;
  Time head_time = std::chrono::seconds(10);  // for all of the head; on a new connection from the start
  std::size_t body_bytes = 32 << 20;
  Time body_time = std::chrono::seconds(30);    // for the body, and then as much
  std::size_t body_bytes_per_second = 8 << 10;  // more as this speed takes for what has come
  Time idle_time = std::chrono::seconds(75);    // between an answer and the next request

  // Of an answer.
  std::size_t unread_bytes = 256 << 10;        // beyond which Exchange::poll is not called
  Time silence = std::chrono::seconds(15);     // of a stream, until Exchange::idle is called
  Time write_time = std::chrono::seconds(30);  // in which a reader takes nothing of what waits for it
  Time linger_time = std::chrono::seconds(2);  // in which a client can read why it was refused

  // Of all clients together; who comes beyond it is told 503.
  std::size_t connections = 16000;
  std::size_t all_body_bytes = std::size_t{1} << 30;  // of requests that have not come whole
};

}  // namespace serve
