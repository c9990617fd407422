// Handler of /v1/embeddings.
#pragma once

#include <functional>
#include <memory>

#include "api/service.hpp"
#include "api/text_request.hpp"

namespace serve {

/// Reads a body that passed check_fields(), and submits its texts to the engine. Throws Refusal.
std::unique_ptr<Exchange> answer_embeddings(const slm::Json& checked, const ServedModel& model, Service& service,
                                            const slm::CancelToken& cancel, const std::function<void()>& wake);

}  // namespace serve
