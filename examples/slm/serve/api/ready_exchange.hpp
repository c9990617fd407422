// Exchanges whose answer is known, and exchanges with more headers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "http/exchange.hpp"

namespace serve {

/// An answer that is available immediately.
struct Ready {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};
};

class ReadyExchange final : public Exchange {
 public:
  explicit ReadyExchange(Ready answer) : answer_(std::move(answer)) {}
  void poll(HttpOutput& out) override {
    out.answer(answer_.status, answer_.type, std::move(answer_.body), std::move(answer_.headers));
  }

 private:
  Ready answer_;
};

/// Adds headers to an answer.
class WithHeaders final : public Exchange {
 public:
  WithHeaders(std::unique_ptr<Exchange> inner, HttpHeaders more) : inner_(std::move(inner)), more_(std::move(more)) {}
  void poll(HttpOutput& out) override {
    Output with(out, more_);
    inner_->poll(with);
  }
  void idle(HttpOutput& out) override {
    Output with(out, more_);
    inner_->idle(with);
  }

 private:
  class Output final : public HttpOutput {
   public:
    Output(HttpOutput& out, const HttpHeaders& more) : out_(out), more_(more) {}
    void answer(int status, std::string_view type, std::string body, HttpHeaders headers) override {
      headers.insert(headers.end(), more_.begin(), more_.end());
      out_.answer(status, type, std::move(body), std::move(headers));
    }
    void begin(int status, std::string_view type, HttpHeaders headers) override {
      headers.insert(headers.end(), more_.begin(), more_.end());
      out_.begin(status, type, std::move(headers));
    }
    void write(std::string_view bytes) override { out_.write(bytes); }
    void end() override { out_.end(); }

   private:
    HttpOutput& out_;
    const HttpHeaders& more_;
  };

  std::unique_ptr<Exchange> inner_;
  HttpHeaders more_;
};

inline std::unique_ptr<Exchange> with_headers(std::unique_ptr<Exchange> exchange, HttpHeaders more) {
  if (more.empty()) return exchange;
  return std::make_unique<WithHeaders>(std::move(exchange), std::move(more));
}

}  // namespace serve
