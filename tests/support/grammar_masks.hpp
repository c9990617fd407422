// Masks of a small vocabulary, compared with every token tried by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar.hpp"

namespace slm::testing {

/// Single bytes and pieces of JSON.
inline const TokenTrie& small_vocabulary() {
  static const TokenTrie tokens = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const char* piece : {"{\"", "\":", "\", \"", "\"}", "null", "name", "\\n", "\\u00", "\n  ", "[1,", "ab", "aab",
                              "1.5", "\xE6\x97", "a\",", "a\": 1}"}) {
      texts.emplace_back(piece);
    }
    return TokenTrie(texts, {});
  }();
  return tokens;
}

/// Follows the bytes of `text` as far as the grammar allows them. Ends the program if a mask is wrong.
inline void check_masks_along(const Grammar& grammar, std::string_view text) {
  const TokenTrie& tokens = small_vocabulary();
  Constraint constraint(grammar);
  std::vector<std::uint64_t> bits((tokens.size() + 63) / 64);
  for (std::size_t step = 0; step < 8; ++step) {
    constraint.mask(tokens, bits);
    bool any = false;
    for (std::size_t token = 0; token < tokens.size(); ++token) {
      const std::string& bytes = tokens.bytes(static_cast<Token>(token));
      const bool allowed = (bits[token / 64] >> token % 64 & 1) != 0;
      Constraint fork = constraint;
      if ((fork.advance(bytes) == bytes.size()) != allowed) std::abort();
      any = any || allowed;
    }
    if (!any && !constraint.may_end()) std::abort();  // every byte has a token
    if (constraint.must_end() == any) std::abort();
    if (step == text.size() || constraint.advance(text.substr(step, 1)) == 0) break;
  }
  const std::size_t length = constraint.length();
  constraint.truncate(length / 2);
  if (constraint.advance(text.substr(length / 2, length - length / 2)) != length - length / 2) std::abort();
}

inline GrammarLimits fuzz_limits() {
  GrammarLimits limits;
  limits.states = 20'000;  // so that many inputs are tried
  limits.alternatives = 500;
  limits.memory = 8 << 20;
  return limits;
}

}  // namespace slm::testing
