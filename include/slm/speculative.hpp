// The front door: load models and tokenizers, generate text, plainly or speculatively.
#pragma once

#include "slm/backend/reference/reference.hpp"
#include "slm/backend/select.hpp"
#include "slm/config/known_models.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/decode/stats.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "slm/model/session.hpp"
#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"
