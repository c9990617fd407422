// The answer to /v1/embeddings: a vector for each text.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "api/service.hpp"
#include "api/text_request.hpp"

namespace serve {

/// Reads the request and hands it to the engine. Throws Refusal.
std::unique_ptr<Exchange> answer_embeddings(const slm::Json& body, const ServedModel& model, Service& service,
                                            const std::stop_token& cancel, const std::function<void()>& wake);

}  // namespace serve
