// Any bytes as a tokenizer.json: an Error, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

SLM_FUZZER(data, size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = slm::Tokenizer::parse(bytes, "fuzz");
    for (const std::string_view text : {std::string_view{"The pump, I'm 2024\n\n  x\u00E9e\u0301\u65E5\U0001F642</s> "},
                                        std::string_view{"\xFF\xE2\x82"}, bytes.substr(0, 200)}) {
      std::vector<slm::Token> tokens = tokenizer.encode(text);
      for (const slm::Token token : tokens) {
        if (!tokenizer.is_token(token)) std::abort();
      }
      tokens.insert(tokens.end(), {-1, 0, 1, 5, tokenizer.vocab()});
      const std::string decoded = tokenizer.decode(tokens);
      if (!slm::utf8::is_valid(decoded)) std::abort();
      for (const std::size_t cut : {std::size_t{0}, tokens.size() / 2}) {
        const auto prompt = std::span{tokens}.first(cut);
        std::string streamed = tokenizer.decode(prompt);
        const bool kept = decoded.starts_with(streamed);
        slm::TextStream stream(tokenizer, prompt, [&](std::string_view piece) { streamed += piece; });
        for (const slm::Token token : std::span{tokens}.subspan(cut)) stream(token);
        stream.finish();
        if (kept && streamed != decoded) std::abort();
      }
      tokenizer.decode(tokens, false);
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
