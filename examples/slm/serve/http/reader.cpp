#include "http/reader.hpp"

#include <algorithm>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <limits>
#include <utility>

#include "http/ascii.hpp"
#include "http/target.hpp"

namespace serve {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t most_id_bytes = 128;

std::string string_of(beast::string_view text) { return {text.data(), text.size()}; }

std::string media_type(beast::string_view content_type) {
  const std::string type = string_of(content_type.substr(0, content_type.find(';')));
  return lower(std::string_view(type).substr(0, type.find_last_not_of(" \t") + 1));
}

bool is_id(beast::string_view text) {
  return text.size() <= most_id_bytes &&
         std::all_of(text.begin(), text.end(), [](char byte) { return byte >= '!' && byte <= '~'; });
}

}  // namespace

std::size_t RequestReader::feed(std::string_view bytes) {
  std::size_t taken = 0;
  if (state_ == State::head) taken = skip_empty_lines(bytes);
  if (state_ == State::head) taken += feed_head(bytes.substr(taken));
  if (state_ == State::body) taken += feed_body(bytes.substr(taken));
  return taken;
}

std::size_t RequestReader::skip_empty_lines(std::string_view bytes) {
  std::size_t skipped = 0;
  if (head_ == "\r" && bytes.starts_with('\n')) {
    head_ = std::string();
    skipped = 1;
  }
  while (head_.empty() && bytes.substr(skipped).starts_with("\r\n")) skipped += 2;
  return skipped;
}

std::size_t RequestReader::feed_head(std::string_view bytes) {
  const auto seen = head_.size();
  head_ += bytes.substr(0, limits_.head_bytes + 1 - seen);
  const auto [length, refusal] = scan_head(head_, seen, limits_);
  if (refusal) refuse(refusal->status, refusal->message);
  if (length == 0) return head_.size() - seen;
  head_.resize(length);
  read_head();
  head_ = std::string();
  return length - seen;
}

void RequestReader::read_head() {
  if (const auto refusal = check_head(head_, limits_)) return refuse(refusal->status, refusal->message);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(limits_.head_bytes));
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // Boost 1.74 treats `none` as 0
  beast::error_code error;
  parser.put(boost::asio::buffer(head_), error);
  if (!parser.is_header_done()) return refuse(400, "The head of the request is malformed.");

  const auto& parsed = parser.get();
  request_.version_1_1 = parsed.version() == 11;
  request_.keep_alive = request_.version_1_1 && parser.keep_alive();
  request_.head_only = parsed.method() == http::verb::head;
  expects_continue_ = request_.version_1_1 && parsed.count(http::field::expect) > 0;
  auto& request = request_.request;
  request.method = request_.head_only ? "GET" : string_of(parsed.method_string());
  const auto target = split_target(string_of(parsed.method_string()), {parsed.target().data(), parsed.target().size()});
  if (!target) return refuse(400, "The head of the request is malformed.");
  request.path = target->path;
  request.query = target->query;
  request.content_type = media_type(parsed[http::field::content_type]);
  request.authorization = string_of(parsed[http::field::authorization]);
  if (parsed.count("X-Api-Key") > 0 && request.authorization.empty()) {
    request.authorization = "Bearer " + string_of(parsed["X-Api-Key"]);
  }
  if (is_id(parsed["X-Request-Id"])) request.id = string_of(parsed["X-Request-Id"]);

  request_.cross_origin = {string_of(parsed[http::field::origin]),
                           string_of(parsed[http::field::access_control_request_method]),
                           string_of(parsed[http::field::access_control_request_headers])};

  length_ = parser.content_length().value_or(0);
  if (length_ > limits_.body_bytes) return refuse(413, "The body is too large.");
  if (parser.chunked()) chunks_.emplace(limits_.body_bytes);
  state_ = chunks_ || length_ > 0 ? State::body : State::complete;
}

std::size_t RequestReader::feed_body(std::string_view bytes) {
  auto& body = request_.request.body;
  if (!chunks_) {
    const auto piece = bytes.substr(0, length_ - body.size());
    body += piece;
    if (body.size() == length_) state_ = State::complete;
    return piece.size();
  }
  const auto taken = chunks_->feed(bytes, body);
  if (chunks_->state() == ChunkDecoder::State::complete) state_ = State::complete;
  if (chunks_->state() == ChunkDecoder::State::damaged) refuse(400, "The chunks of the body are malformed.");
  if (chunks_->state() == ChunkDecoder::State::too_large) refuse(413, "The body is too large.");
  return taken;
}

void RequestReader::refuse(int status, std::string_view message) {
  state_ = State::refused;
  refusal_ = {status, message};
}

}  // namespace serve
