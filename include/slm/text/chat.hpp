// Chats as prompts: a model's own chat template, rendered and encoded so that no message can steer the model.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/core/macros.hpp"
#include "slm/text/chat_template.hpp"

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_text_chat_hpp)
}}}

#if SLM_COMPILES
#include "slm/text/chat_functions.hpp"
#endif
