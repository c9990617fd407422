// Answers of llama.cpp's /completion and /infill.
#pragma once

#include <functional>
#include <memory>

#include "api/llama_request.hpp"

namespace serve {

/// Hands the request to the engine. The model, the service and wake must outlive the exchange. Throws Refusal.
std::unique_ptr<Exchange> answer_llama(LlamaRequest request, const ServedModel& model, Service& service,
                                       const slm::CancelToken& cancel, const std::function<void()>& wake);

}  // namespace serve
