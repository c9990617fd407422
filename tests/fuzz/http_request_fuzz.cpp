// Any bytes as requests of one connection: the result does not depend on the chunks, and bodies equal those of a simple
// decoder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzzer.hpp"
#include "http/reader.hpp"

namespace {

using serve::RequestReader;

serve::HttpLimits small_limits() {
  serve::HttpLimits limits;
  limits.line_bytes = 256;
  limits.head_bytes = 1024;
  limits.fields = 16;
  limits.body_bytes = 4096;
  return limits;
}
const serve::HttpLimits limits = small_limits();

struct Outcome {
  RequestReader::State state;
  int status;
  std::string path, body;
  std::size_t taken = 0;
};

Outcome read(std::string_view bytes, std::size_t first, std::size_t piece) {
  RequestReader reader(limits);
  Outcome outcome{};
  for (auto size = first; outcome.taken < bytes.size(); size = piece) {
    const auto given = bytes.substr(outcome.taken, std::max<std::size_t>(1, size));
    const auto taken = reader.feed(given);
    outcome.taken += taken;
    if (reader.state() == RequestReader::State::complete || reader.state() == RequestReader::State::refused) break;
    if (taken != given.size()) std::abort();  // it needs more bytes but leaves some
  }
  outcome.state = reader.state();
  outcome.status = reader.refusal().status;
  if (outcome.state == RequestReader::State::complete) {
    auto request = reader.take().request;
    outcome.path = std::move(request.path);
    outcome.body = std::move(request.body);
  }
  return outcome;
}

/// The body of a chunked message that a strict parser has accepted.
std::string decoded(std::string_view chunks) {
  std::string body;
  for (;;) {
    const auto size = std::strtoull(std::string(chunks.substr(0, 32)).c_str(), nullptr, 16);
    if (size == 0) return body;
    chunks.remove_prefix(chunks.find("\r\n") + 2);
    body += chunks.substr(0, size);
    if (chunks.substr(size, 2) != "\r\n") std::abort();
    chunks.remove_prefix(size + 2);
  }
}

}  // namespace

SLM_FUZZER(data, size) {
  if (size < 2) return 0;
  const std::size_t first = data[0], piece = data[1];
  std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  for (;;) {
    const auto whole = read(bytes, bytes.size(), 1);
    const auto pieces = read(bytes, first, piece);
    if (whole.state != pieces.state || whole.status != pieces.status) std::abort();
    if (whole.state == RequestReader::State::refused && whole.status == 0) std::abort();
    if (whole.state != RequestReader::State::complete) return 0;
    if (whole.path != pieces.path || whole.body != pieces.body || whole.taken != pieces.taken) std::abort();
    if (whole.body.size() > limits.body_bytes || (whole.path.front() != '/' && whole.path != "*")) std::abort();
    auto message = bytes.substr(0, whole.taken);
    while (message.starts_with("\r\n")) message.remove_prefix(2);
    const auto body = message.substr(message.find("\r\n\r\n") + 4);
    if (whole.body != body && whole.body != decoded(body)) std::abort();
    bytes.remove_prefix(whole.taken);
  }
}
