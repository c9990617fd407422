// The answers of OpenAI's /v1/responses.
#pragma once

#include <memory>

#include "api/reply.hpp"

namespace serve {

/// repeated: members of the request that the answer has, see repeated_fields().
std::unique_ptr<Reply> response_reply(const TextRequest& request, OrderedJson repeated);

}  // namespace serve
