// Lines as a list of texts: an Error, or a grammar that takes each of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/grammar.hpp"

SLM_FUZZER(data, size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> texts;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    texts.emplace_back(rest.substr(0, end));
    rest = end == rest.npos ? std::string_view{} : rest.substr(end + 1);
  }
  try {
    const slm::Grammar grammar = slm::Grammar::choice(texts);
    for (const std::string& text : texts) {
      slm::Constraint constraint(grammar);
      if (constraint.advance(text) != text.size() || !constraint.may_end()) std::abort();
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
