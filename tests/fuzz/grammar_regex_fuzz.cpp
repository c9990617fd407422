// Any bytes as a regular expression: an Error, or a grammar that has a text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "message.hpp"
#include "slm/grammar.hpp"
#include "support/grammar_masks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const slm::Grammar grammar = slm::Grammar::regex(source, slm::testing::fuzz_limits());
    const slm::Constraint constraint(grammar);
    if (constraint.may_end() && !constraint.forced().empty()) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
