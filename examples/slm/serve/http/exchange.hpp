// What the transport and the API tell each other: a request that has come, and its answer in the making.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace serve {

/// A request whose head and body the transport has found sound.
struct HttpRequest {
  std::string method;         // "GET", "POST", ...; HEAD comes as GET, and its answer loses its body
  std::string path;           // as sent, before '?', of a URI too; "*": the whole server, only with OPTIONS
  std::string query;          // as sent, behind '?'
  std::string content_type;   // the media type in lower case, without its parameters
  std::string authorization;  // as sent
  std::string id;             // X-Request-Id, or a new one where the client's was none or is not printable
  std::string body;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// Where an answer is written: either answer() once, or begin(), write() as often as needed, end(). The transport
/// itself adds Date, Connection, the body's length and X-Request-Id.
class HttpOutput {
 public:
  virtual ~HttpOutput() = default;
  virtual void answer(int status, std::string_view content_type, std::string body, HttpHeaders headers = {}) = 0;
  virtual void begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end() = 0;
};

/// An answer in the making. Only its connection's thread calls it, and destroys it: when the answer is complete, or
/// when its client is gone before.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Writes what there is to say by now. Called once at first, then after each call of `wake`, but not while the client
  /// leaves much of what was written unread. Must not wait.
  virtual void poll(HttpOutput& out) = 0;

  /// A stream has said nothing for a while, so that the client may take it for dead.
  virtual void idle(HttpOutput&) {}
};

/// Begins the answer to a request, on its connection's thread. wake: makes that thread call poll(); any thread may call
/// it at any time, also when the exchange is gone, and it costs little.
using Handler = std::function<std::unique_ptr<Exchange>(HttpRequest request, std::function<void()> wake)>;

}  // namespace serve
