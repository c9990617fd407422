// Requests of Anthropic's /v1/messages, read as chats.
#pragma once

#include <string_view>

#include "api/chat_body.hpp"
#include "api/text_request.hpp"

namespace serve {

/// The chat of a body. body: gets checked. source: its text. Throws Refusal.
ChatBody chat_of_messages(slm::Json& body, std::string_view source, bool strict);

/// Names of a chat's fields in this API.
FieldNames names_in_messages();

/// {"type": "error", "error": …}
OrderedJson message_error(const Refusal& refusal);

}  // namespace serve
