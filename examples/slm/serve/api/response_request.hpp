// Requests of OpenAI's /v1/responses, read as chats.
#pragma once

#include <string_view>

#include "api/chat_body.hpp"
#include "api/text_request.hpp"

namespace serve {

/// The chat of a body. body: gets checked. source: its text. Throws Refusal.
ChatBody chat_of_responses(slm::Json& body, std::string_view source, bool strict);

/// The members of an answer that repeat the request, which chat_of_responses() has checked.
OrderedJson repeated_fields(const slm::Json& body, std::string_view source);

/// Names of a chat's fields in this API.
FieldNames names_in_responses();

}  // namespace serve
