// Admission of requests: KV memory, and pages that other requests compute.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/engine/job.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Whether the pool has memory for a request's text so far, for the unread prompts of running requests, and for one
/// more page each.
template <class GenerationType>
bool fits(const Job<GenerationType>& job, const Jobs<GenerationType>& running, const KvPool& pool) {
  if (!pool || pool.budget() == 0) return true;
  const auto bytes_of = [&](std::size_t length) { return pool.bytes_of(static_cast<std::int64_t>(length)); };
  const std::size_t length = job.generation == nullptr ? job.request.prompt.size() : job.generation->history().size();
  std::size_t all = bytes_of(length + page_positions), held = 0;
  for (const Job<GenerationType>& one : running) {
    all += bytes_of(one.generation->history().size() + page_positions);
    held += bytes_of(one.generation->sequence().tokens().size());
  }
  if (all <= pool.budget()) return true;  // fits even without shared pages
  return pool.used() - pool.idle() + all - held <= pool.budget();
}

/// Whether a request in `filling` is about to compute the rest of the page that this one needs next.
template <class GenerationType>
bool waits_for_pages(const GenerationType& generation, const std::vector<const GenerationType*>& filling) {
  const auto read = static_cast<std::size_t>(generation.sequence().length());
  const std::size_t end = (read / page_positions + 1) * page_positions;
  const std::span<const Token> text = generation.history();
  if (end >= text.size()) return false;
  return std::any_of(filling.begin(), filling.end(), [&](const GenerationType* other) {
    const std::span<const Token> its = other->history();
    return other->sequence().shares_with(generation.sequence()) && end < its.size() &&
           static_cast<std::size_t>(other->sequence().length()) < end &&
           std::equal(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), its.begin());
  });
}

}}}
