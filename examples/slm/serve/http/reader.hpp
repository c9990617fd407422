// Bytes of a connection become a request, whatever pieces they come in.
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

/// A request, and what its head says about the answer.
struct ReadRequest {
  HttpRequest request;
  bool version_1_1 = true;
  bool keep_alive = true;
  bool head_only = false;  // HEAD, which its handler sees as GET
  CrossOrigin cross_origin;
};

/// Reads one request, and drops empty lines before it (RFC 9112, section 2.2). Boost.Beast's parser sees its head once
/// that has been checked (http/head.hpp).
class RequestReader {
 public:
  enum class State { head, body, complete, refused };

  explicit RequestReader(const HttpLimits& limits) : limits_(limits) {}

  /// Takes what belongs to this request off the front of `bytes`, and returns how much that was.
  std::size_t feed(std::string_view bytes);

  State state() const { return state_; }
  bool begun() const { return state_ != State::head || !head_.empty(); }     // false: only empty lines have come
  const CrossOrigin& cross_origin() const { return request_.cross_origin; }  // once the head is read
  const Refusal& refusal() const { return refusal_; }                        // where refused
  ReadRequest take() { return std::move(request_); }                         // where complete
  bool expects_continue() const { return expects_continue_; }                // to be told that the body may come
  std::size_t body_bytes() const { return request_.request.body.size(); }

 private:
  std::size_t skip_empty_lines(std::string_view bytes);
  std::size_t feed_head(std::string_view bytes);
  std::size_t feed_body(std::string_view bytes);
  void read_head();
  void refuse(int status, std::string_view message);

  const HttpLimits& limits_;
  State state_ = State::head;
  Refusal refusal_;
  std::string head_;  // so far
  ReadRequest request_;
  bool expects_continue_ = false;
  std::uint64_t length_ = 0;            // of the body
  std::optional<ChunkDecoder> chunks_;  // where its length is not told before
};

}  // namespace serve
