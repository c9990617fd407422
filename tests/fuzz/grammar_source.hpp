// Any bytes as the source of a grammar: an Error, or a grammar that has a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "message.hpp"
#include "slm/grammar.hpp"
#include "support/grammar_masks.hpp"

/// parse(source, limits) returns the grammar.
template <class Parse>
void check_grammar_source(const std::uint8_t* data, std::size_t size, Parse parse) {
  try {
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    const slm::Grammar grammar = parse(source, slm::testing::fuzz_limits());
    const slm::Constraint constraint(grammar);
    if (constraint.may_end() && !constraint.forced().empty()) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
}
