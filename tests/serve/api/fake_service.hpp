// A model whose answers the test defines, token by token, and the output of an answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/api.hpp"
#include "slm/core/error.hpp"
#include "support/paths.hpp"

namespace serve::test {

/// The demo pair's tokenizer: byte level, 2048 ids, 0 ends a text.
inline ServedModel demo_model() {
  ServedModel model{.names = {"demo", "alias"},
                    .root = "somewhere",
                    .info = {.name = "demo", .vocab = 2048, .context = 64, .end_tokens = {0}},
                    .tokenizer = slm::Tokenizer::from(slm::testing::source_path("examples/demo_pair/target")),
                    .chat = cli::ChatFormat{.form = slm::ChatTemplate::from({}, "plain")},
                    .fingerprint = "slm-test",
                    .tokenizer_info = {}};
  return model;
}

/// Stores requests; the test acts as the engine.
class FakeService final : public Service {
 public:
  struct Asked {
    slm::Request request;
    slm::Scheduling scheduling;
    std::shared_ptr<slm::detail::AnswerState> answer;

    void say(slm::Token token, bool drafted = false, double logprob = -1,
             const std::vector<slm::TokenLogprob>& top = {}) {
      answer->tokens.emplace_back(
          slm::GeneratedToken{.token = token, .position = 0, .drafted = drafted, .logprob = logprob, .top = top});
      answer->stats.emitted += 1;
    }
    void end(slm::FinishReason reason) {
      answer->stats.finish_reason = reason;
      answer->state = slm::detail::RequestState::ended;
    }
    void fail(const slm::Error& error) {
      answer->error = std::make_exception_ptr(error);
      end(slm::FinishReason::error);
    }
  };

  slm::Answer submit(slm::Request request, const slm::Scheduling& scheduling, std::function<void()>) override {
    if (asked.size() == most) throw slm::Error("engine.full", "the engine is full", "Come again");
    asked.push_back({std::move(request), scheduling, std::make_shared<slm::detail::AnswerState>()});
    return slm::Answer(asked.back().answer);
  }
  slm::EngineStats stats() const override { return {}; }
  std::string fault() override { return fault_id; }

  std::vector<Asked> asked;
  std::size_t most = 100;
  std::string fault_id;
};

struct FakeOutput final : HttpOutput {
  void answer(int with_status, std::string_view content_type, std::string body, HttpHeaders with_headers) override {
    status = with_status, type = content_type, text = std::move(body), headers = std::move(with_headers), ended = true;
  }
  void begin(int with_status, std::string_view content_type, HttpHeaders with_headers) override {
    status = with_status, type = content_type, headers = std::move(with_headers);
  }
  void write(std::string_view bytes) override {
    text += bytes;
    ++writes;
  }
  void end() override { ended = true; }

  slm::Json json() const { return slm::Json::parse(text); }
  /// The events of a stream except [DONE], which must end it if `done`.
  std::vector<slm::Json> events(bool done = true) const {
    std::vector<slm::Json> found;
    std::string_view rest = text;
    while (rest.starts_with("data: {")) {
      const std::size_t end = rest.find("\n\n");
      found.push_back(slm::Json::parse(rest.substr(6, end - 6)));
      rest.remove_prefix(end + 2);
    }
    if (ended && rest != (done ? "data: [DONE]\n\n" : ""))
      throw slm::Error("the stream does not end with [DONE]: " + std::string(rest));
    return found;
  }

  /// The events of a stream whose events are named by their types.
  std::vector<slm::Json> named_events() const {
    std::vector<slm::Json> found;
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t line = rest.find('\n'), end = rest.find("\n\n");
      const std::string_view name = rest.substr(0, line), data = rest.substr(line + 1, end - line - 1);
      if (end == rest.npos || !name.starts_with("event: ") || !data.starts_with("data: ")) {
        throw slm::Error("this is no event with a name: " + std::string(rest));
      }
      found.push_back(slm::Json::parse(data.substr(6)));
      if (found.back()["type"] != name.substr(7)) throw slm::Error("the name differs from the type");
      rest.remove_prefix(end + 2);
    }
    return found;
  }

  int status = 0, writes = 0;
  std::string type, text;
  HttpHeaders headers;
  bool ended = false;
};

/// The API over a fake engine.
struct FakeServer {
  explicit FakeServer(ApiOptions options = {}, ServedModel model = demo_model()) {
    auto fake = std::make_unique<FakeService>();
    service = fake.get();
    api = std::make_unique<Api>(LoadedModel{std::move(model), std::move(fake)}, std::move(options));
  }

  std::unique_ptr<Exchange> begin(const std::string& path, const std::string& body, const std::string& method = "POST",
                                  const std::string& query = {}) {
    return api->handle({.method = method,
                        .path = path,
                        .query = query,
                        .content_type = "application/json",
                        .authorization = authorization,
                        .id = "1",
                        .body = body},
                       [] {});
  }
  /// An answer that takes no time.
  FakeOutput ask(const std::string& path, const std::string& body, const std::string& method = "POST") {
    FakeOutput out;
    begin(path, body, method)->poll(out);
    return out;
  }

  FakeService* service;
  std::unique_ptr<Api> api;
  std::string authorization;
};

}  // namespace serve::test
