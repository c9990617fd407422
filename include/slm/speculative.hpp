// Public header for generation: load models and tokenizers, generate text with or without speculative decoding.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/backend/select.hpp"
#include "slm/core/macros.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/decode/stats.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_speculative_hpp)
}}}
