// The answer to a TextRequest, whole or as a stream of server-sent events.
#pragma once

#include <functional>
#include <memory>

#include "api/service.hpp"
#include "api/text_request.hpp"

namespace serve {

/// Hands the request to the engine. Throws Refusal.
std::unique_ptr<Exchange> answer_text(TextRequest request, const ServedModel& model, Service& service,
                                      const slm::CancelToken& cancel, const std::function<void()>& wake);

}  // namespace serve
