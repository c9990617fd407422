// Twice the text takes about twice the time, also where the whole text is one word.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"
#include "tests/support/paths.hpp"

using slm::Token;
using slm::Tokenizer;

namespace {

/// Seconds of the fastest of three runs: other work on the machine only adds.
template <class Work>
double seconds(Work&& work) {
  double best = 1e9;
  for (int run = 0; run < 3; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

std::string repeated(const std::string& unit, std::size_t length) {
  std::string text;
  while (text.size() < length) text += unit;
  return text;
}

}  // namespace

TEST_CASE("encoding takes linear time") {
  // An n^2 algorithm would take 16 times as long on four times the text; n log n and caches stay far below.
  for (const char* name : {"llama2_legacy", "gpt2", "neox", "llama3", "phi3"}) {
    const Tokenizer tokenizer = Tokenizer::from(slm::testing::fixture("tokenizers/" + std::string{name} + ".json"));
    for (const char* unit :
         {"a", " ", "\n ", "The pump runs 2024 times, it's fine.\n", "e\u0301", "\u65E5", "<", "<|end|> "}) {
      const std::string small = repeated(unit, 50000), large = repeated(unit, 200000);
      const double small_time = seconds([&] { tokenizer.encode(small); });
      const double large_time = seconds([&] { tokenizer.encode(large); });
      INFO(name << " on '" << unit << "': " << small_time << " s, then " << large_time << " s");
      CHECK(large_time < 10 * small_time + 0.005);
      CHECK(tokenizer.decode(tokenizer.encode(large, false), false).size() > 0);
    }
  }
}

TEST_CASE("streaming a long run of byte tokens with stop strings takes linear time") {
  const Tokenizer tokenizer = Tokenizer::from(slm::testing::fixture("tokenizers/llama2_legacy.json"));
  const Token letter = tokenizer.token("<0x41>").value();
  const auto stream = [&](std::size_t count) {
    slm::TextStream sink(tokenizer, {}, [](std::string_view) {}, {"AAAAB", "\n"});
    for (std::size_t i = 0; i < count; ++i) sink(letter);
    sink.finish();
  };
  const double small_time = seconds([&] { stream(20000); });
  const double large_time = seconds([&] { stream(80000); });
  INFO(small_time << " s, then " << large_time << " s");
  CHECK(large_time < 10 * small_time + 0.005);
}
