#include "http/answer.hpp"

#include <array>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <ctime>
#include <stdexcept>

#include "slm/core/os/local_time.hpp"

namespace serve {
namespace {

std::string date() {
  const std::tm parts = slm::detail::utc_time(std::time(nullptr)).value_or(std::tm{});
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

void AnswerWriter::expect(State state) const {
  if (state_ != state) throw std::logic_error("an answer is written by answer(), or by begin(), write() and end()");
}

void AnswerWriter::write_header(std::string_view name, std::string_view value) {
  out_.append(name).append(": ");
  for (const char byte : value) out_ += static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f ? ' ' : byte;
  out_ += "\r\n";
}

void AnswerWriter::write_head(int status, std::string_view content_type, const HttpHeaders& headers) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  out_.append("HTTP/1.1 ")
      .append(std::to_string(status))
      .append(" ")
      .append(reason.data(), reason.size())
      .append("\r\n");
  write_header("Date", date());
  if (!form_.keep_alive) write_header("Connection", "close");
  if (!content_type.empty()) write_header("Content-Type", content_type);
  if (!form_.id.empty()) write_header("X-Request-Id", form_.id);
  for (const auto& [name, value] : form_.headers) write_header(name, value);
  for (const auto& [name, value] : headers) write_header(name, value);
}

void AnswerWriter::answer(int status, std::string_view content_type, std::string body, HttpHeaders headers) {
  expect(State::none);
  write_head(status, content_type, headers);
  if (status != 204) write_header("Content-Length", std::to_string(body.size()));
  out_ += "\r\n";
  if (!form_.head_only && status != 204) out_ += body;
  state_ = State::ended;
}

void AnswerWriter::begin(int status, std::string_view content_type, HttpHeaders headers) {
  expect(State::none);
  write_head(status, content_type, headers);
  if (form_.version_1_1) write_header("Transfer-Encoding", "chunked");
  out_ += "\r\n";
  state_ = State::stream;
}

void AnswerWriter::write(std::string_view bytes) {
  expect(State::stream);
  if (bytes.empty() || form_.head_only) return;  // an empty chunk would be the last
  if (!form_.version_1_1) {
    out_ += bytes;
    return;
  }
  std::array<char, 16> size{};
  out_.append(size.data(), std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr);
  out_.append("\r\n").append(bytes).append("\r\n");
}

void AnswerWriter::end() {
  expect(State::stream);
  if (form_.version_1_1 && !form_.head_only) out_ += "0\r\n\r\n";
  state_ = State::ended;
}

}  // namespace serve
