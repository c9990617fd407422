// Any bytes as the metadata of a GGUF file: an Error, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/gguf.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

SLM_FUZZER(data, size) {
  try {
    const auto contents = slm::parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    const auto tokenizer = slm::Tokenizer::parse(contents.fields);
    const std::vector<slm::Token> tokens = tokenizer.encode("abc a  b\n\u65E5 </s>abcabc<|end|>12");
    for (const slm::Token token : tokens) {
      if (token < 0 || token >= tokenizer.vocab()) std::abort();
    }
    if (!slm::utf8::is_valid(tokenizer.decode(tokens, false))) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
