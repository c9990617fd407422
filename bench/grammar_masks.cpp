// Times of compiling JSON schemas and of masks along texts, in processor time of one thread, as JSON.
// bench/peers/masks.py writes the cases and compares with llguidance.
//   build/cpu/bin/bench-grammar_masks TOKENIZER CASES.json
// CASES.json: [{"schema": ..., "texts": [[token ids], ...]}, ...]
#include <cstdint>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/thread_time.hpp"
#include "slm/grammar.hpp"
#include "slm/text/tokenizer.hpp"

namespace {

double microseconds_since(double begin) { return (slm::detail::thread_seconds() - begin) * 1e6; }

struct Times {
  std::vector<double> compile, mask, advance;
};

void measure(const nlohmann::ordered_json& one, const slm::TokenTrie& tokens, Times& times) {
  const std::string schema = one["schema"].dump();
  double begin = slm::detail::thread_seconds();
  const auto grammar = slm::Grammar::json_schema(schema);
  times.compile.push_back(microseconds_since(begin));
  std::vector<std::uint64_t> bits((tokens.size() + 63) / 64);
  for (const auto& text : one["texts"]) {
    slm::Constraint constraint(grammar);
    for (const auto& id : text) {
      begin = slm::detail::thread_seconds();
      constraint.mask(tokens, bits);
      times.mask.push_back(microseconds_since(begin));
      const auto token = id.get<slm::Token>();
      if ((bits[static_cast<std::size_t>(token) / 64] >> token % 64 & 1) == 0) {
        throw slm::Error("the mask forbids a token of a text that fits " + schema.substr(0, 200));
      }
      begin = slm::detail::thread_seconds();
      constraint.advance(tokens.bytes(token));
      times.advance.push_back(microseconds_since(begin));
    }
    if (!constraint.may_end()) throw slm::Error("a text that fits may not end: " + schema.substr(0, 200));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw slm::Error("usage: bench-grammar_masks TOKENIZER CASES.json");
  const slm::TokenTrie tokens(slm::Tokenizer::from(argv[1]));
  const auto cases = nlohmann::ordered_json::parse(std::ifstream(argv[2]));
  Times times;
  for (const auto& one : cases) measure(one, tokens, times);
  std::cout << nlohmann::json{{"compile", times.compile}, {"mask", times.mask}, {"advance", times.advance}} << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
