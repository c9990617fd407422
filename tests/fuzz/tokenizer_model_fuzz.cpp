// Any bytes as a tokenizer.model: an Error, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

SLM_FUZZER(data, size) {
  try {
    const auto tokenizer = slm::Tokenizer::parse_model({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::vector<slm::Token> tokens = tokenizer.encode("abc a  b\n\u65E5 </s>abcabc");
    for (const slm::Token token : tokens) {
      if (!tokenizer.is_token(token)) std::abort();
    }
    if (!slm::utf8::is_valid(tokenizer.decode(tokens, false))) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
