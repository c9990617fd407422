// Handler of the routes that embed texts.
#pragma once

#include <functional>
#include <memory>

#include "api/service.hpp"
#include "api/text_request.hpp"

namespace serve {

/// The form of an answer: OpenAI's, llama.cpp's of /embedding, or the results of /rerank.
enum class EmbeddingForm { openai, llama, rerank };

/// Reads a body that passed check_fields(), and submits its texts to the engine. Throws Refusal.
std::unique_ptr<Exchange> answer_embeddings(const slm::Json& checked, const ServedModel& model, Service& service,
                                            const slm::CancelToken& cancel, const std::function<void()>& wake,
                                            EmbeddingForm form = EmbeddingForm::openai);

}  // namespace serve
