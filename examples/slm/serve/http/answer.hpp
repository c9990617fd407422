// Serializes an answer as HTTP/1.1 or 1.0.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "http/exchange.hpp"

namespace serve {

/// Appends one answer to `out`.
class AnswerWriter final : public HttpOutput {
 public:
  struct Form {
    bool version_1_1 = true;
    bool keep_alive = false;
    bool head_only = false;
    std::string id;            // of the request
    HttpHeaders headers = {};  // for every answer to it
  };

  AnswerWriter(std::string& out, Form form) : out_(out), form_(std::move(form)) {}

  void answer(int status, std::string_view content_type, std::string body, HttpHeaders headers = {}) override;
  void begin(int status, std::string_view content_type, HttpHeaders headers = {}) override;
  void write(std::string_view bytes) override;
  void end() override;

  bool begun() const { return state_ != State::none; }
  bool streaming() const { return state_ == State::stream; }
  bool ended() const { return state_ == State::ended; }
  bool version_1_1() const { return form_.version_1_1; }
  bool keep_alive() const { return form_.keep_alive; }
  void do_not_keep_alive() { form_.keep_alive = false; }

 private:
  enum class State { none, stream, ended };

  void expect(State state) const;
  void write_head(int status, std::string_view content_type, const HttpHeaders& headers);
  void write_header(std::string_view name, std::string_view value);

  std::string& out_;
  Form form_;
  State state_ = State::none;
};

}  // namespace serve
