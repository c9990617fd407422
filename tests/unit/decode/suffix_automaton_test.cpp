// The automaton of prompt lookup, compared with a direct search.
#include "slm/decode/suffix_automaton.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The latest position in `text` at which the longest suffix of `read`, of at most `longest` tokens, ends.
SuffixAutomaton::Match by_hand(const std::vector<Token>& text, const std::vector<Token>& read, std::size_t longest) {
  SuffixAutomaton::Match best;
  for (std::size_t end = text.size(); end > 0; --end) {
    std::size_t length = 0;
    while (length < longest && length < end && length < read.size() &&
           text[end - 1 - length] == read[read.size() - 1 - length]) {
      ++length;
    }
    if (static_cast<int>(length) > best.length) best = {static_cast<int>(length), end};
  }
  return best;
}

bool same(SuffixAutomaton::Match one, SuffixAutomaton::Match other) {
  return one.length == other.length && (one.length == 0 || one.end == other.end);
}

/// Appends every token, and also searches each suffix directly.
void check_text(const std::vector<Token>& text, int longest) {
  SuffixAutomaton automaton(longest);
  std::vector<Token> before, so_far;
  for (const Token token : text) {
    before = so_far;
    so_far.push_back(token);
    CAPTURE(so_far, longest);
    REQUIRE(same(automaton.append(token), by_hand(before, so_far, static_cast<std::size_t>(longest))));
  }
  REQUIRE(std::vector<Token>(automaton.text().begin(), automaton.text().end()) == text);
  REQUIRE(automaton.states() <= 2 * text.size() + 1);
  REQUIRE(automaton.edges() <= 3 * text.size());
}

std::vector<Token> fibonacci_word(std::size_t length) {
  std::vector<Token> one{0}, other{0, 1};
  while (other.size() < length) {
    std::vector<Token> next = other;
    next.insert(next.end(), one.begin(), one.end());
    one = std::exchange(other, std::move(next));
  }
  other.resize(length);
  return other;
}

std::vector<Token> random_text(std::uint64_t number, std::size_t length, std::uint64_t alphabet) {
  std::vector<Token> text;
  for (std::uint64_t i = 0; i < length; ++i) text.push_back(static_cast<Token>(mix(number * 4096 + i) % alphabet));
  return text;
}

}  // namespace

TEST_CASE("the longest suffix that occurred before is found at its latest occurrence") {
  for (std::uint64_t number = 0; number < 1500; ++number) {
    const auto length = 1 + static_cast<std::size_t>(mix(number) % 60);
    check_text(random_text(number, length, 1 + number % 5), 1 + static_cast<int>(mix(number + 7) % 80));
  }
  check_text(random_text(1, 700, 2), 1000);
  check_text(std::vector<Token>(300, 5), 16);
  check_text(std::vector<Token>(300, 5), 1000);
  check_text(fibonacci_word(400), 16);
  check_text(fibonacci_word(400), 1000);
  check_text({-1, 2147483647, -1, 2147483647, -1}, 4);
}

TEST_CASE("a reader of other tokens knows its longest suffix in the text") {
  for (std::uint64_t number = 0; number < 600; ++number) {
    const std::uint64_t alphabet = 1 + number % 4;
    const int longest = static_cast<int>(mix(number) % 20);
    const auto text = random_text(number, 1 + static_cast<std::size_t>(mix(number + 1) % 80), alphabet);
    const auto other = random_text(number + 100000, 60, alphabet + 1);
    SuffixAutomaton automaton(longest);
    for (const Token token : text) automaton.append(token);
    SuffixAutomaton::Cursor cursor;
    std::vector<Token> read;
    for (const Token token : other) {
      read.push_back(token);
      cursor = automaton.read(cursor, token);
      CAPTURE(text, read, longest);
      REQUIRE(same(automaton.match(cursor), by_hand(text, read, static_cast<std::size_t>(longest))));
    }
  }
}

TEST_CASE("the cost per token is the same for long texts with repetition") {
  // Quadratic work on any of these would take hours.
  constexpr std::size_t length = 500000;
  std::vector<Token> mirrored(length / 2, 1);
  mirrored.resize(length, 2);
  for (const std::vector<Token>& text :
       {std::vector<Token>(length, 7), fibonacci_word(length), mirrored, random_text(3, length, 2)}) {
    SuffixAutomaton automaton(16);
    for (const Token token : text) automaton.append(token);
    CHECK(automaton.states() <= 2 * length);
    CHECK(automaton.edges() <= 3 * length);
    SuffixAutomaton::Cursor cursor;
    for (const Token token : text) cursor = automaton.read(cursor, token);
    CHECK(automaton.match(cursor).length == 16);
  }
}

TEST_CASE("a cleared automaton contains nothing of the previous text") {
  SuffixAutomaton automaton(8);
  for (const Token token : {1, 2, 3, 1, 2, 3}) automaton.append(token);
  automaton.clear();
  CHECK(automaton.text().empty());
  CHECK(automaton.match(automaton.read({}, 1)).length == 0);
  for (const Token token : {4, 1, 5}) CHECK(automaton.append(token).length == 0);
  CHECK(same(automaton.append(4), {1, 1}));
}
