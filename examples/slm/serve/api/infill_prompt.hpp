// The prompt that asks a model for the text between a prefix and a suffix.
#pragma once

#include <vector>

#include "api/fields.hpp"
#include "api/service.hpp"

namespace serve {

/// Reads `input_prefix`, `prompt`, `input_suffix` and `input_extra`. The tokenizer's own tokens mark the parts. Throws
/// Refusal; 501 where the tokenizer has no such tokens.
std::vector<slm::Token> infill_prompt(const Fields& fields, const ServedModel& model);

}  // namespace serve
