// The library on Windows in one small program, for the test that `./test` runs under Wine. It prints a JSON object:
// slm's version, the logits of a model after some tokens, and the tokens of a greedy text, whose draft model changes
// none.
//  windows-short LOGITS_MODEL IDS TARGET DRAFT PROMPT TOKENS
#include <charconv>
#include <iostream>
#include <slm/core/os/path.hpp>
#include <slm/speculative.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

template <class Number>
std::string list(std::span<const Number> numbers) {
  std::string out;
  for (const Number number : numbers) {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    out += (out.empty() ? "[" : ",") + std::string(digits, end);
  }
  return out + "]";
}

int number(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::vector<slm::Token> tokens(std::string_view ids) {
  std::vector<slm::Token> all;
  for (std::size_t begin = 0; begin < ids.size(); begin = ids.find(',', begin) + 1) {
    all.push_back(number(ids.substr(begin)));
    if (ids.find(',', begin) == std::string_view::npos) break;
  }
  return all;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 7) throw slm::Error("usage: windows-short LOGITS_MODEL IDS TARGET DRAFT PROMPT TOKENS");
  const slm::backend::Cpu device({.threads = 2});
  slm::Session session(slm::load(slm::path_of(arguments[1]), device));
  const std::vector<slm::Token> given = tokens(arguments[2]);
  const auto rows = session.forward(given, static_cast<int>(given.size()));
  std::string logits;
  for (std::int64_t row = 0; row < rows.extent(0); ++row) {
    logits += (row == 0 ? "" : ",") + list(std::span(rows.row(row), static_cast<std::size_t>(rows.extent(1))));
  }

  const auto target = slm::load(slm::path_of(arguments[3]), device);
  const auto draft = slm::load(slm::path_of(arguments[4]), device);
  const auto prompt = slm::Tokenizer::from(slm::path_of(arguments[3])).encode(arguments[5]);
  std::vector<slm::Token> text;
  slm::SpeculativeDecoder decoder{draft, target, {.draft_tokens = 4}};
  const slm::Stats stats = decoder.generate(prompt, {.max_new_tokens = number(arguments[6]), .temperature = 0},
                                            [&](slm::Token token) { text.push_back(token); });
  std::cout << slm::text("{\"version\":\"", SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH,
                         "\",\"logits\":[", logits, "],\"ids\":", list(std::span<const slm::Token>(text)),
                         ",\"accepted\":", stats.accepted, "}\n");
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
