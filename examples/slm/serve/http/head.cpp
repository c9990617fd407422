#include "http/head.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "http/ascii.hpp"
#include "http/target.hpp"

namespace serve {
namespace {

bool is_alphanumeric(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

constexpr BadHead bad(std::string_view message) { return {400, message}; }

bool is_token(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_token_byte); }

bool is_control(char byte) { return (static_cast<unsigned char>(byte) < 0x20 && byte != '\t') || byte == 0x7f; }

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Removes a line from the front of `rest`.
std::string_view next_line(std::string_view& rest) {
  const auto end = rest.find("\r\n");
  const auto line = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return line;
}

std::optional<BadHead> check_request_line(std::string_view line) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad("The first line is not METHOD PATH HTTP/1.1.");
  const auto target = line.substr(first + 1, last - first - 1);
  const auto version = line.substr(last + 1);
  const auto method = line.substr(0, first);
  if (!is_token(method)) return bad("The method is not a word.");
  if (method == "CONNECT") return bad("This server is not a proxy.");  // clients expect no more HTTP after it
  for (const char byte : target) {
    if (byte < '!' || byte > '~') return bad("The path has bytes that must be escaped.");
  }
  if (!split_target(method, target)) return bad("The target is neither a valid path nor an http URI.");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return bad("The version is neither HTTP/1.1 nor HTTP/1.0.");
  return std::nullopt;
}

/// Fields that may not be repeated, because their repetition would be ambiguous.
constexpr std::array<std::string_view, 8> single_fields{
    "host", "content-length", "transfer-encoding", "expect", "content-type", "authorization", "origin", "x-api-key"};
enum SingleField : unsigned { host = 1, content_length = 2, transfer_encoding = 4, expect = 8 };

/// Methods with a body. RFC 9112 treats a missing length as no body; but if a client forgot the length, its body would
/// be read as the next request.
constexpr std::array<std::string_view, 3> with_body{"POST", "PUT", "PATCH"};

std::optional<BadHead> check_length(std::string_view value) {
  constexpr std::uint64_t most = std::uint64_t{1} << 53;
  std::uint64_t length = 0;
  for (const char digit : value) {
    if (digit < '0' || digit > '9') return bad("Content-Length is not a number.");
    length = length * 10 + static_cast<std::uint64_t>(digit - '0');
    if (length > most) return BadHead{413, "The body is too large."};
  }
  if (value.empty()) return bad("Content-Length is empty.");
  return std::nullopt;
}

std::optional<BadHead> check_field(std::string_view name, std::string_view value) {
  if (name == "host" && !is_authority(value)) return bad("Host is not a valid host name.");
  if (name == "content-length") return check_length(value);
  if (name == "transfer-encoding" && lower(value) != "chunked") return bad("Transfer-Encoding is not chunked.");
  if (name == "expect" && lower(value) != "100-continue") return BadHead{417, "Expect is not 100-continue."};
  return std::nullopt;
}

}  // namespace

bool is_token_byte(char byte) {
  return is_alphanumeric(byte) || std::string_view("!#$%&'*+-.^_`|~").find(byte) != std::string_view::npos;
}

HeadScan scan_head(std::string_view bytes, std::size_t seen, const HttpLimits& limits) {
  for (std::size_t i = seen; i < bytes.size(); ++i) {
    if (i == limits.head_bytes) return {0, BadHead{431, "The head of the request is too large."}};
    if (i == limits.line_bytes && bytes.substr(0, i).find('\n') == std::string_view::npos) {
      return {0, BadHead{414, "The first line of the request is too long."}};
    }
    const char byte = bytes[i];
    const bool after_return = i > 0 && bytes[i - 1] == '\r';
    if (after_return != (byte == '\n')) return {0, bad("A line of the head does not end in CRLF.")};
    if (is_control(byte) && byte != '\r' && byte != '\n') return {0, bad("The head has a control byte.")};
    if (byte == '\n' && i >= 3 && bytes.substr(i - 3, 4) == "\r\n\r\n") return {i + 1, std::nullopt};
  }
  return {};
}

std::optional<BadHead> check_head(std::string_view head, const HttpLimits& limits) {
  std::string_view rest = head;
  const auto request_line = next_line(rest);
  if (const auto refusal = check_request_line(request_line)) return refusal;
  const bool version_1_1 = request_line.back() == '1';

  unsigned seen = 0;
  std::size_t fields = 0;
  for (auto line = next_line(rest); !line.empty(); line = next_line(rest)) {
    if (++fields > limits.fields) return BadHead{431, "The request has too many header fields."};
    if (line.front() == ' ' || line.front() == '\t') return bad("A header field continues in a second line.");
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return bad("A header field has no colon.");
    if (!is_token(line.substr(0, colon))) return bad("The name of a header field is not a word.");
    const auto name = lower(line.substr(0, colon));
    for (std::size_t i = 0; i < single_fields.size(); ++i) {
      if (name != single_fields[i]) continue;
      if (seen & (1U << i)) return bad("A header field that must be unique is repeated.");
      seen |= 1U << i;
    }
    if (const auto refusal = check_field(name, trimmed(line.substr(colon + 1)))) return refusal;
  }
  if ((seen & transfer_encoding) && (seen & content_length)) return bad("The body has two lengths.");
  if ((seen & transfer_encoding) && !version_1_1) return bad("HTTP/1.0 has no Transfer-Encoding.");
  if (version_1_1 && !(seen & host)) return bad("Host is missing.");
  const auto method = request_line.substr(0, request_line.find(' '));
  const bool has_body = std::find(with_body.begin(), with_body.end(), method) != with_body.end();
  if (has_body && !(seen & (content_length | transfer_encoding))) {
    return BadHead{411, "Content-Length is missing; an empty body has the length 0."};
  }
  return std::nullopt;
}

}  // namespace serve
