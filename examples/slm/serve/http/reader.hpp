// Bytes of a connection become a request, whatever pieces they come in.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "http/exchange.hpp"
#include "http/head.hpp"
#include "http/limits.hpp"

namespace serve {

/// A request, and what its head says about the answer.
struct ReadRequest {
  HttpRequest request;
  bool version_1_1 = true;
  bool keep_alive = true;
  bool head_only = false;         // HEAD, which its handler sees as GET
  bool expects_continue = false;  // the client wants to be told that it may send the body
};

/// Reads one request. Its head is checked (http/head.hpp) before Boost.Beast's parser sees it.
class RequestReader {
 public:
  enum class State { head, body, complete, refused };

  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();

  /// Takes what belongs to this request off the front of `bytes`, and returns how much that was.
  std::size_t feed(std::string_view bytes);

  State state() const { return state_; }
  const Refusal& refusal() const { return refusal_; }      // where refused
  const ReadRequest& request() const { return request_; }  // its head, once there is a body to come
  std::size_t body_bytes() const;                          // of the body so far
  ReadRequest take();                                      // where complete

 private:
  struct Parser;

  std::size_t feed_head(std::string_view bytes);
  std::size_t feed_body(std::string_view bytes);
  void begin_body();
  void refuse(const Refusal& refusal);

  const HttpLimits& limits_;
  State state_ = State::head;
  Refusal refusal_;
  std::string unparsed_;  // the head so far, or the line before a chunk
  std::unique_ptr<Parser> parser_;
  ReadRequest request_;
};

}  // namespace serve
