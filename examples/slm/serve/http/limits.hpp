// Resource limits for clients.
#pragma once

#include <chrono>
#include <cstddef>

namespace serve {

struct HttpLimits {
  using Time = std::chrono::milliseconds;

  // Per request.
  std::size_t line_bytes = 8 << 10;  // first line
  std::size_t head_bytes = 16 << 10;
  std::size_t fields = 64;
  Time head_time = std::chrono::seconds(10);  // for the whole head; on a new connection from its start
  std::size_t body_bytes = 32 << 20;
  Time body_time = std::chrono::seconds(30);    // for the body, plus the time below
  std::size_t body_bytes_per_second = 8 << 10;  // minimum rate, which extends body_time
  Time idle_time = std::chrono::seconds(75);    // between an answer and the next request

  // Per answer.
  std::size_t unread_bytes = 256 << 10;        // unread output above which Exchange::poll is not called
  Time silence = std::chrono::seconds(15);     // of a stream, before Exchange::idle is called
  Time write_time = std::chrono::seconds(30);  // without any read by the client
  Time linger_time = std::chrono::seconds(2);  // for a refused client to read the answer

  // Over all clients; others get 503.
  std::size_t connections = 16000;
  std::size_t all_body_bytes = std::size_t{1} << 30;  // of incomplete requests
};

}  // namespace serve
