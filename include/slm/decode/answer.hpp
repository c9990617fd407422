// Answer: what both halves of a round, drafting and verification, know of a request while it is answered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "slm/core/types.hpp"
#include "slm/decode/processor.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/stats.hpp"
#include "slm/model/language_model.hpp"

namespace slm::detail {

struct Answer {
  ModelInfo target;
  Request request = {};
  Processor processor = {};  // points at the request: an answer stays where it is
  EndTokens ends = {};
  Stats stats = {};

  const Sampling& sampling() const { return request.sampling; }
  std::span<const Token> history() const { return processor.history(); }
  std::size_t vocab() const { return static_cast<std::size_t>(target.vocab); }
};

/// The first of the prompt's tokens, but for its last, that are not among the `read` first: as many as one step takes.
inline std::span<const Token> next_of_prompt(const Request& request, std::size_t read) {
  const std::size_t to_read = request.prompt.size() - 1;
  if (read >= to_read) return {};
  return std::span(request.prompt).subspan(read, std::min(prompt_chunk, to_read - read));
}

}  // namespace slm::detail
