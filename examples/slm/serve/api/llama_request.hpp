// LlamaRequest: what a client asks of llama.cpp's /completion or /infill, read from JSON and checked.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/text_request.hpp"

namespace serve {

struct LlamaRequest {
  TextRequest text;
  bool return_tokens = false;
  std::vector<std::string> response_fields;          // paths; empty: all
  std::string grammar;                               // as the request has it
  std::vector<std::pair<slm::Token, float>> biases;  // of `logit_bias` and `ignore_eos`
};

/// source: the text of `body`. Throws Refusal.
LlamaRequest read_llama_completion(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                                   std::string_view source = {});
LlamaRequest read_infill(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                         std::string_view source = {});

/// A request without fields and without prompts.
LlamaRequest llama_request_without_fields(const ServedModel& model, const ReadingOptions& options);

/// The fields of a request with their values, as `generation_settings` has them.
OrderedJson generation_settings(const LlamaRequest& request, std::size_t choice, const ServedModel& model);

}  // namespace serve
