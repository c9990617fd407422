#include "http/reader.hpp"

#include <algorithm>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <functional>
#include <utility>

namespace serve {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t most_extension_bytes = 64;  // of one chunk
constexpr std::size_t most_id_bytes = 128;

/// A body whose memory grows with what comes, not with what Content-Length claims.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, std::string& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, beast::error_code& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, beast::error_code& error) {
      error = {};
      std::size_t bytes = 0;
      for (const auto buffer : beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
        bytes += buffer.size();
      }
      return bytes;
    }
    void finish(beast::error_code& error) { error = {}; }

   private:
    std::string& body_;
  };
};

std::string string_of(beast::string_view text) { return {text.data(), text.size()}; }

std::string media_type(beast::string_view content_type) {
  std::string type = string_of(content_type.substr(0, content_type.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  std::transform(type.begin(), type.end(), type.begin(), beast::detail::ascii_tolower);
  return type;
}

bool is_plain(beast::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return byte >= '!' && byte <= '~'; });
}

/// What the head says. Trailers behind a body do not reach it.
ReadRequest read_head(const http::request_parser<GrowingBody>& parser) {
  const auto& parsed = parser.get();
  const auto target = parsed.target();
  const auto question = std::min(target.find('?'), target.size());
  ReadRequest read;
  read.version_1_1 = parsed.version() == 11;
  read.keep_alive = read.version_1_1 && parser.keep_alive();
  read.head_only = parsed.method() == http::verb::head;
  read.expects_continue = read.version_1_1 && parsed.count(http::field::expect) > 0;
  read.request.method = read.head_only ? "GET" : string_of(parsed.method_string());
  read.request.path = string_of(target.substr(0, question));
  read.request.query = string_of(target.substr(std::min(question + 1, target.size())));
  read.request.content_type = media_type(parsed[http::field::content_type]);
  read.request.authorization = string_of(parsed[http::field::authorization]);
  const auto id = parsed["X-Request-Id"];
  if (id.size() <= most_id_bytes && is_plain(id)) read.request.id = string_of(id);
  return read;
}

}  // namespace

struct RequestReader::Parser {
  explicit Parser(const HttpLimits& limits) {
    parser.eager(true);
    parser.header_limit(static_cast<std::uint32_t>(limits.head_bytes));
    parser.body_limit(limits.body_bytes);
    parser.on_chunk_header(check_chunk);
  }

  std::size_t put(std::string_view bytes) {
    std::size_t taken = 0;
    while (!parser.is_done() && taken < bytes.size()) {
      const auto now = parser.put(boost::asio::buffer(bytes.data() + taken, bytes.size() - taken), error);
      taken += now;
      if (error == http::error::need_more) error = {};
      if (error || now == 0) break;
    }
    return taken;
  }

  http::request_parser<GrowingBody> parser;
  beast::error_code error;
  // Beast takes line feeds in the quotes of an extension, where others see the end of a line.
  std::function<void(std::uint64_t, beast::string_view, beast::error_code&)> check_chunk =
      [](std::uint64_t, beast::string_view extension, beast::error_code& damage) {
        if (extension.size() > most_extension_bytes || !is_plain(extension)) damage = http::error::bad_chunk_extension;
      };
};

RequestReader::RequestReader(const HttpLimits& limits) : limits_(limits) {}
RequestReader::~RequestReader() = default;

std::size_t RequestReader::feed(std::string_view bytes) {
  std::size_t taken = 0;
  if (state_ == State::head) taken = feed_head(bytes);
  if (state_ == State::body) taken += feed_body(bytes.substr(taken));
  return taken;
}

std::size_t RequestReader::feed_head(std::string_view bytes) {
  const auto seen = unparsed_.size();
  unparsed_ += bytes.substr(0, limits_.head_bytes + 1 - seen);
  const auto [length, refusal] = scan_head(unparsed_, seen, limits_);
  if (refusal) refuse(*refusal);
  if (length == 0) return unparsed_.size() - seen;
  unparsed_.resize(length);
  begin_body();
  return length - seen;
}

void RequestReader::begin_body() {
  if (const auto refusal = check_head(unparsed_, limits_)) return refuse(*refusal);
  parser_ = std::make_unique<Parser>(limits_);
  parser_->put(unparsed_);
  unparsed_.clear();
  if (parser_->error == http::error::body_limit) return refuse({413, "The body is too large."});
  if (parser_->error) return refuse({400, "The head of the request is damaged."});
  request_ = read_head(parser_->parser);
  state_ = parser_->parser.is_done() ? State::complete : State::body;
}

/// Beast takes a body as it comes, but the line before a chunk, and what follows the last, only as a whole: each as
/// long as a head at most.
std::size_t RequestReader::feed_body(std::string_view bytes) {
  std::size_t taken = 0;
  while (state_ == State::body && taken < bytes.size()) {
    const auto piece = bytes.substr(taken, limits_.head_bytes - unparsed_.size());
    unparsed_ += piece;
    taken += piece.size();
    unparsed_.erase(0, parser_->put(unparsed_));
    if (parser_->error == http::error::body_limit) {
      refuse({413, "The body is too large."});
    } else if (parser_->error || unparsed_.size() == limits_.head_bytes) {
      refuse({400, "The chunks of the body are damaged."});
    } else if (parser_->parser.is_done()) {
      state_ = State::complete;
      taken -= unparsed_.size();
    }
  }
  return taken;
}

void RequestReader::refuse(const Refusal& refusal) {
  state_ = State::refused;
  refusal_ = refusal;
}

std::size_t RequestReader::body_bytes() const { return parser_ ? parser_->parser.get().body().size() : 0; }

ReadRequest RequestReader::take() {
  request_.request.body = std::move(parser_->parser.get().body());
  return std::move(request_);
}

}  // namespace serve
