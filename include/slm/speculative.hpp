// The front door: load models and tokenizers, generate text, plainly or speculatively.
#pragma once

#include "slm/backend/select.hpp"
#include "slm/core/macros.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/decode/stats.hpp"
#include "slm/model/load.hpp"
#include "slm/model/session.hpp"
#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"

// Who names a Model or the Reference in a program of slm::compiled includes what is here.
#if !defined(SLM_DECLARATIONS_ONLY)
#include "slm/backend/reference/reference.hpp"
#include "slm/model/model.hpp"
#endif

#if defined(SLM_COMPILED)
namespace slm { inline namespace v0_1 {
SLM_COMPILED_TEMPLATE class SpeculativeDecoder<AnyModel, AnyModel>;
SLM_COMPILED_TEMPLATE class SpeculativeDecoder<NgramDrafter, AnyModel>;
SLM_COMPILED_TEMPLATE class SpeculativeDecoder<NoDrafter, AnyModel>;
}}
#endif
