// The answers of Anthropic's /v1/messages.
#pragma once

#include <memory>

#include "api/reply.hpp"

namespace serve {

std::unique_ptr<Reply> message_reply(const TextRequest& request);

}  // namespace serve
