// The interface between transport and API: a request and its answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace serve {

/// A request whose head and body the transport has validated.
struct HttpRequest {
  std::string method;         // "GET", "POST", ...; HEAD is passed as GET, and its answer is sent without body
  std::string path;           // as sent, before '?', also of a URI; "*": the whole server, only with OPTIONS
  std::string query;          // as sent, after '?'
  std::string content_type;   // the media type in lower case, without parameters
  std::string authorization;  // as sent; without it, "Bearer " and the value of X-Api-Key
  std::string id;             // X-Request-Id, or a generated one if the client's is absent or not printable
  std::string body;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// The destination of an answer: either answer() once, or begin(), write() any number of times, end(). The transport
/// adds Date, Connection, the body's length and X-Request-Id.
class HttpOutput {
 public:
  virtual ~HttpOutput() = default;
  virtual void answer(int status, std::string_view content_type, std::string body, HttpHeaders headers = {}) = 0;
  virtual void begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end() = 0;
};

/// An answer in progress. Only its connection's thread calls and destroys it: when the answer is complete, or when the
/// client is gone.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Writes available output. Called once at first, then after each call of `wake`, except while much output is unread.
  /// Must not block.
  virtual void poll(HttpOutput& out) = 0;

  /// Called when a stream was silent for a while, so that it can send a keep-alive.
  virtual void idle(HttpOutput&) {}
};

/// Begins the answer to a request, on its connection's thread. wake: makes that thread call poll(); cheap, callable
/// from any thread at any time, also after the exchange's end.
using Handler = std::function<std::unique_ptr<Exchange>(HttpRequest request, std::function<void()> wake)>;

}  // namespace serve
