// A pattern on the first line, a text behind it: an Error, or a matcher that agrees with one that tries every branch.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/text/split/parser.hpp"
#include "slm/text/split/pieces.hpp"
#include "slm/text/utf8.hpp"
#include "support/backtracking.hpp"

SLM_FUZZER(data, size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view pattern = bytes.substr(0, bytes.find('\n'));
  std::string_view text = bytes.substr(pattern.size() == size ? size : pattern.size() + 1);
  text = text.substr(0, slm::utf8::valid_prefix(text));
  try {
    const slm::split::Splitter splitter{slm::split::Matcher::compile(pattern, "fuzz")};
    slm::split::Matcher::Places places;
    std::vector<std::pair<std::size_t, std::size_t>> matches;
    std::size_t done = 0;
    splitter.matcher->each(text, places, [&](std::size_t begin, std::size_t end) {
      if (begin < done || end < begin || end > text.size()) std::abort();
      if (splitter.matcher->covers() && begin != done) std::abort();
      matches.emplace_back(begin, done = end);
    });
    if (splitter.matcher->covers() && done != text.size()) std::abort();
    std::size_t joined = 0;
    splitter(text, places, [&](std::string_view piece) {
      if (piece.empty() || piece.data() != text.data() + joined) std::abort();
      joined += piece.size();
    });
    if (joined != text.size()) std::abort();
    const slm::split::Syntax syntax = slm::split::Parser({"fuzz", pattern}).parse();
    if (text.size() > 100) return 0;
    const auto expected = slm::testing::Backtracking(syntax, text, 2000).matches();
    if (expected && *expected != matches) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
