// Any bytes as a JSON schema: an Error, or a grammar that has a text.
#include "fuzzer.hpp"
#include "grammar_source.hpp"

SLM_FUZZER(data, size) {
  check_grammar_source(data, size,
                       [](auto source, const auto& limits) { return slm::Grammar::json_schema(source, {}, limits); });
  return 0;
}
