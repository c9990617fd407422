// A letter for the kind of grammar, the grammar, a zero byte, a text: each mask along the text holds exactly the tokens
// that can be taken.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/grammar.hpp"
#include "support/grammar_masks.hpp"

SLM_FUZZER(data, size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  const std::string_view source = bytes.substr(1, bytes.find('\0', 1) - 1);
  const std::string_view text = bytes.substr(source.size() + 1 < size ? source.size() + 2 : size);
  try {
    const auto limits = slm::testing::fuzz_limits();
    const slm::Grammar grammar = bytes[0] == 'r'   ? slm::Grammar::regex(source, limits)
                                 : bytes[0] == 'g' ? slm::Grammar::gbnf(source, limits)
                                                   : slm::Grammar::json_schema(source, {}, limits);
    slm::testing::check_masks_along(grammar, text);
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
