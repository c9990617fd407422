// Any bytes as a regular expression: an Error, or a grammar that has a text.
#include "grammar_source.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_grammar_source(data, size, [](auto source, const auto& limits) { return slm::Grammar::regex(source, limits); });
  return 0;
}
