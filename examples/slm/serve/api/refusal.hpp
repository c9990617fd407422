// Refusal: an error answer in OpenAI's format.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "http/exchange.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"

namespace serve {

using OrderedJson = nlohmann::ordered_json;

struct Refusal : std::runtime_error {
  Refusal(int http_status, std::string id, const std::string& message)
      : std::runtime_error(message), status(http_status), slm_id(std::move(id)) {}

  Refusal& of(std::string field) {
    param = std::move(field);
    return *this;
  }
  Refusal& coded(std::string name) {
    code = std::move(name);
    return *this;
  }

  int status;
  std::string slm_id;                        // see docs/errors.md
  std::string param;                         // the invalid field; empty: none
  std::string code;                          // machine-readable code; empty: none
  OrderedJson more = OrderedJson::object();  // further members of the error, or other values
  HttpHeaders headers = {};
};

/// A field of the request with a wrong type or value.
inline Refusal bad_field(const std::string& name, const std::string& found_and_expected) {
  return Refusal(400, "serve.bad-field", slm::text("`", name, "` ", found_and_expected, ".")).of(name);
}

/// A field that requests an unsupported feature.
inline Refusal unsupported(const std::string& name, const std::string& what, std::string_view reason = {}) {
  const std::string because = reason.empty() ? std::string{} : slm::text(": ", reason);
  return Refusal(400, "serve.unsupported", slm::text(what, " is not supported by this server", because, ".")).of(name);
}

inline Refusal overloaded(const std::string& id, const std::string& code, const std::string& message) {
  Refusal refusal(503, id, message);
  refusal.code = code;
  refusal.headers = {{"Retry-After", "2"}};  // clients ignore a Retry-After of more than 120 s
  return refusal;
}

inline Refusal shutting_down() {
  return overloaded("serve.draining", "draining", "The server ended this request, as it is shutting down.");
}

/// The refusal for an error of the library before the answer begins.
inline Refusal refused_by(const slm::Error& error) {
  if (error.id() == "engine.stopped") return shutting_down();
  if (error.id() == "engine.full") {
    return overloaded(error.id(), "overloaded",
                      "The server has reached its maximum number of requests. Try again later.");
  }
  return Refusal(400, error.id(), error.what());
}

/// The refusal for an error after the answer has begun. Library messages may contain file names and are not sent.
inline Refusal failed_by(const std::string& id, int status = 500) {
  return Refusal(status, id, slm::text("The model failed during this request (", id, ")."));
}

inline OrderedJson error_json(const Refusal& refusal) {
  const auto or_null = [](const std::string& word) { return word.empty() ? OrderedJson() : OrderedJson(word); };
  const std::string type = refusal.status >= 500   ? "server_error"
                           : refusal.status == 401 ? "authentication_error"
                                                   : "invalid_request_error";
  OrderedJson error{{"message", refusal.what()},
                    {"type", type},
                    {"param", or_null(refusal.param)},
                    {"code", or_null(refusal.code)},
                    {"slm_id", refusal.slm_id}};
  error.update(refusal.more);
  return {{"error", std::move(error)}};
}

inline void answer_refusal(HttpOutput& out, const Refusal& refusal) {
  out.answer(refusal.status, "application/json", slm::json_text(error_json(refusal)), refusal.headers);
}

}  // namespace serve
