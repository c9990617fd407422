// Assembles requests from the bytes of a connection, independent of their division.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "http/chunks.hpp"
#include "http/cors.hpp"
#include "http/exchange.hpp"
#include "http/head.hpp"
#include "http/limits.hpp"

namespace serve {

/// A request, and properties of its answer.
struct ReadRequest {
  HttpRequest request;
  bool version_1_1 = true;
  bool keep_alive = true;
  bool head_only = false;  // HEAD, which the handler receives as GET
  CrossOrigin cross_origin;
};

/// Reads one request, and skips empty lines before it (RFC 9112, section 2.2). Boost.Beast parses its head only after
/// validation (http/head.hpp).
class RequestReader {
 public:
  enum class State { head, body, complete, refused };

  explicit RequestReader(const HttpLimits& limits) : limits_(limits) {}

  /// Consumes this request's bytes from the front of `bytes`, and returns their number.
  std::size_t feed(std::string_view bytes);

  State state() const { return state_; }
  bool begun() const { return state_ != State::head || !head_.empty(); }     // false: only empty lines so far
  const CrossOrigin& cross_origin() const { return request_.cross_origin; }  // valid after the head
  const BadHead& refusal() const { return refusal_; }                        // valid if refused
  ReadRequest take() { return std::move(request_); }                         // valid if complete
  bool expects_continue() const { return expects_continue_; }                // the client waits for 100 Continue
  std::size_t body_bytes() const { return request_.request.body.size(); }

 private:
  std::size_t skip_empty_lines(std::string_view bytes);
  std::size_t feed_head(std::string_view bytes);
  std::size_t feed_body(std::string_view bytes);
  void read_head();
  void refuse(int status, std::string_view message);

  const HttpLimits& limits_;
  State state_ = State::head;
  BadHead refusal_;
  std::string head_;  // partial head
  ReadRequest request_;
  bool expects_continue_ = false;
  std::uint64_t length_ = 0;            // of the body
  std::optional<ChunkDecoder> chunks_;  // set for a chunked body
};

}  // namespace serve
