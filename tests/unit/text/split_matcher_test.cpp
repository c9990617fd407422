// The matcher of split patterns: what its dialect means, what it refuses, and that it agrees with a matcher that tries
// one branch after the other.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "slm/text/split/parser.hpp"
#include "slm/text/split/patterns.hpp"
#include "slm/text/split/pieces.hpp"
#include "slm/text/utf8.hpp"
#include "tests/support/backtracking.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/paths.hpp"

using slm::split::Behavior;
using slm::split::Matcher;

namespace {

using Words = std::vector<std::string>;
using Places = std::vector<std::pair<std::size_t, std::size_t>>;

Words pieces(const slm::split::Splitter& splitter, std::string_view text) {
  Words words;
  Matcher::Places places;
  splitter(text, places, [&](std::string_view piece) { words.emplace_back(piece); });
  return words;
}

Words pieces(std::string_view pattern, std::string_view text, Behavior behavior = Behavior::isolated,
             bool invert = false) {
  return pieces({Matcher::compile(pattern, "test"), behavior, invert}, text);
}

Places matches(const Matcher& matcher, std::string_view text) {
  Places found;
  Matcher::Places places;
  matcher.each(text, places, [&](std::size_t begin, std::size_t end) { found.emplace_back(begin, end); });
  return found;
}

/// The message of the Error that compiling throws; empty when it is accepted.
std::string fault(std::string_view pattern) {
  try {
    Matcher::compile(pattern, "a.json");
    return {};
  } catch (const slm::Error& error) {
    CHECK(error.id() == "tokenizer.split-pattern");
    return error.what();
  }
}

std::string repeated(const std::string& unit, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += unit;
  return out;
}

/// Patterns of a small grammar, and texts that they say something about.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  std::string pattern(int depth) {
    std::string out = sequence(depth);
    while (below(3) == 0) out += "|" + sequence(depth);
    return out;
  }

  std::string text() {
    static const std::vector<std::string> characters{"a",      "b",      "c",      "A",      "S",      "'",
                                                     " ",      " ",      "\n",     "1",      "2",      ".",
                                                     "\u00E9", "\u0301", "\u4E00", "\u00BD", "\u3000", "\u017F"};
    std::string out;
    for (std::size_t left = below(24); left > 0; --left) out += characters[below(characters.size())];
    return out;
  }

 private:
  std::size_t below(std::size_t end) { return engine_() % end; }
  const char* one_of(const std::vector<const char*>& words) { return words[below(words.size())]; }

  std::string sequence(int depth) {
    std::string out;
    for (std::size_t left = 1 + below(3); left > 0; --left) out += part(depth);
    return out;
  }

  std::string part(int depth) {
    if (below(8) == 0) return one_of({"\\b", "\\B", "^", "$", "\\A", "\\z", "(?<=a)", "(?<!\\s)", "(?<=[^b1])"});
    if (depth > 0 && below(6) == 0) return (below(2) ? "(?=" : "(?!") + pattern(depth - 1) + ")";
    std::string atom;
    const bool group = depth > 0 && below(3) == 0;
    if (group) {
      atom = std::string{one_of({"(?:", "(", "(?i:"})} + pattern(depth - 1) + "|a)";
    } else {
      atom = one_of({"a", "b", "\\s", "\\S", "\\p{L}", "\\p{N}", "\\w", "[^\\w]", "[a-c1]", "[^\\s\\p{L}]", ".", " ",
                     "s", "[\\p{L}&&[^b\\p{Han}]]", "'", "\\p{M}"});
    }
    if (below(2)) return atom;
    if (!group && below(4) == 0) return atom + one_of({"?+", "*+", "++"});
    return atom + one_of({"?", "*", "+", "??", "*?", "+?", "{2}", "{1,3}", "{,2}", "{2,}", "{1,2}?"});
  }

  std::mt19937 engine_;
};

}  // namespace

TEST_CASE("split patterns agree with Hugging Face on random strings") {
  const auto golden = nlohmann::json::parse(std::ifstream(slm::testing::fixture("tokenizers/golden_splits.json")));
  const auto& strings = golden.at("s");
  REQUIRE(strings.size() == 800);
  const std::pair<const char*, std::string_view> patterns[] = {{"gpt2", slm::split::pattern::gpt2},
                                                               {"llama3", slm::split::pattern::llama3},
                                                               {"qwen2", slm::split::pattern::qwen2}};
  for (const auto& [name, pattern] : patterns) {
    const slm::split::Splitter splitter{Matcher::compile(pattern, "test")};
    for (std::size_t i = 0; i < strings.size(); ++i) {
      const std::string text = strings[i];
      INFO(name << ", string " << i << ": " << text);
      CHECK(pieces(splitter, text) == golden.at(name)[i].get<Words>());
    }
  }
}

TEST_CASE("split patterns agree with a matcher that tries every branch") {
  std::size_t compared = 0, skipped = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::string pattern = random.pattern(2);
    const slm::split::PatternErrors errors{"test", pattern};
    std::shared_ptr<const Matcher> matcher;
    try {
      matcher = Matcher::compile(pattern, "test");
    } catch (const slm::Error&) {
      ++skipped;
      continue;
    }
    const slm::split::Syntax syntax = slm::split::Parser(errors).parse();
    for (int i = 0; i < 12; ++i) {
      const std::string text = random.text();
      const auto expected = slm::testing::Backtracking(syntax, text, 20000).matches();
      if (!expected) continue;
      ++compared;
      INFO("seed " << seed << ", pattern " << pattern << ", text '" << text << "'");
      REQUIRE(matches(*matcher, text) == *expected);
    }
  }
  CHECK(compared > 2000);
  CHECK(skipped < 10);
}

TEST_CASE("split patterns: what Oniguruma's dialect means") {
  CHECK(pieces("a|ab", "ab") == Words{"a", "b"});  // the first branch, not the longest
  CHECK(pieces("a+?", "aaa") == Words{"a", "a", "a"});
  CHECK(pieces("a+?b", "aaab") == Words{"aaab"});
  CHECK(pieces("a++a", "aaa") == Words{"aaa"});  // matches nowhere: one piece
  CHECK(pieces("\\d{1,2}+", "12345") == Words{"12345"});
  CHECK(pieces("\\d{2}?", "12345") == Words{"12", "34", "5"});
  CHECK(pieces("\\d{,2}", "12345") == Words{"12", "34", "5"});
  CHECK(pieces("a{x", "a{x") == Words{"a{x"});
  CHECK(pieces("(?:|a)*", "aab") == Words{"a", "a", "b"});
  CHECK(pieces("$", "a\nb\n") == Words{"a", "\nb", "\n"});
  CHECK(pieces("^", "a\nb\n") == Words{"a\n", "b\n"});
  CHECK(pieces("\\n^", "x\n") == Words{"x\n"});
  CHECK(pieces("(?<=a)b", "ab b") == Words{"a", "b", " b"});
  CHECK(pieces("(?<!a)b", "ab b") == Words{"ab ", "b"});
  CHECK(pieces("(?=(\\d{3})+(?!\\d))", "1234567") == Words{"1", "234", "567"});
  CHECK(pieces("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 1234a") == Words{"1", "234", "567", " 1234a"});
  CHECK(pieces("a(?i)b|c", "aB C ac aC") == Words{"aB", " C ", "ac", " ", "aC"});
  CHECK(pieces("(?i:'S)", "'s'\u017F") == Words{"'s", "'\u017F"});
  CHECK(pieces("(?i:[^k]+)", "K\u212Axk") == Words{"K\u212A", "x", "k"});
  CHECK(pieces("(?i:\u00DF)", "\u1E9E\u00DFs") == Words{"\u1E9E", "\u00DF", "s"});
  CHECK(pieces("[]a]+", "x]a") == Words{"x", "]a"});
  CHECK(pieces("[a-]+", "b-a") == Words{"b", "-a"});
  CHECK(pieces("[a-c-e]+", "a-be") == Words{"a-be"});
  CHECK(pieces("[^a-z&&[^aeiou]]", "abc") == Words{"a", "bc"});
  CHECK(pieces("[(\\s|[.,])]+", "a(|.,) b") == Words{"a", "(|.,) ", "b"});
  CHECK(pieces("[[:punct:]]+", "a$+!b") == Words{"a", "$+!", "b"});
  CHECK(pieces("\\p{^L}+|\\p{han}", "a12\u4E00\u4E00") == Words{"a", "12", "\u4E00", "\u4E00"});
  CHECK(pieces("\\p{Uppercase_Letter}|\\pN", "aB1") == Words{"a", "B", "1"});
  CHECK(pieces("\\w+", "5\u00BD_\u00E9\u0301 x") == Words{"5\u00BD_\u00E9\u0301", " ", "x"});
  CHECK(pieces("[\\w]+", "5\u00BD") == Words{"5", "\u00BD"});  // inside a class Latin-1's fractions are no words
  CHECK(pieces("\\x41|\\x{1F642}|\\u00E9", "A\U0001F642\u00E9") == Words{"A", "\U0001F642", "\u00E9"});
  CHECK(pieces(".+", "a\nb") == Words{"a", "\n", "b"});
  CHECK(pieces("", "ab") == Words{"a", "b"});
  CHECK(pieces("a", "").empty());
}

TEST_CASE("split patterns: what becomes of the matches") {
  using enum Behavior;
  const auto cut = [](Behavior behavior, bool invert) { return pieces(" ", "a  bc d ", behavior, invert); };
  CHECK(cut(isolated, false) == Words{"a", " ", " ", "bc", " ", "d", " "});
  CHECK(cut(isolated, true) == cut(isolated, false));
  CHECK(cut(removed, false) == Words{"a", "bc", "d"});
  CHECK(cut(removed, true) == Words{" ", " ", " ", " "});
  CHECK(cut(contiguous, false) == Words{"a", "  ", "bc", " ", "d", " "});
  CHECK(cut(merged_with_previous, false) == Words{"a ", " ", "bc ", "d "});
  CHECK(cut(merged_with_previous, true) == Words{"a", " ", " bc", " d", " "});
  CHECK(cut(merged_with_next, false) == Words{"a", " ", " bc", " d", " "});
  CHECK(cut(merged_with_next, true) == Words{"a ", " ", "bc ", "d "});
  CHECK(pieces(slm::split::escaped("a.[\n\u00E9"), "xa.[\n\u00E9aa") == Words{"x", "a.[\n\u00E9", "aa"});
  CHECK(Matcher::compile(slm::split::pattern::qwen2, "")->covers());
  CHECK(!Matcher::compile("\\p{L}+", "")->covers());
  CHECK(!Matcher::compile("\\p{L}*|\\P{L}", "")->covers());  // an empty match comes first
}

TEST_CASE("split patterns: what is refused, with pattern and position") {
  using Catch::Contains;
  CHECK_THAT(fault("ab(?>c)"), Contains("a.json: the regular expression 'ab(?>c)', character 3: this kind of group"));
  CHECK_THAT(fault("\u00E9(a)\\1"), Contains("character 5: this escape is not supported"));
  CHECK_THAT(fault("[a-\\d]"), Contains("character 2: a range must end with a character"));
  CHECK_THAT(fault("[\\w-z]"), Contains("a range must begin with a character"));
  CHECK_THAT(fault("[z-a]"), Contains("this range is empty"));
  CHECK_THAT(fault("[]"), Contains("this class is empty"));
  CHECK_THAT(fault("x[a"), Contains("character 2: this class has no end"));
  CHECK_THAT(fault("(a"), Contains("character 1: this group has no end"));
  CHECK_THAT(fault("a)"), Contains("character 2: this parenthesis closes nothing"));
  CHECK_THAT(fault("a|*"), Contains("character 3: this quantifier has nothing to repeat"));
  CHECK_THAT(fault("(?=a)*"), Contains("character 6: a quantifier behind what matches no character"));
  CHECK_THAT(fault("(?:ab)++"), Contains("a possessive quantifier is supported behind a character or a class only"));
  CHECK_THAT(fault("(?<=ab)c"), Contains("a look-behind is supported for one character only"));
  CHECK_THAT(fault("\\p{Foo}"), Contains("this property is no general category and no script"));
  CHECK_THAT(fault("\\p{L"), Contains("this property has no end"));
  CHECK_THAT(fault("[[:alpha:]]"), Contains("character 2: this POSIX class is not supported"));
  CHECK_THAT(fault("\\x{110000}"), Contains("expected the hexadecimal number of a character"));
  CHECK_THAT(fault("\\xE9"), Contains("expected the hexadecimal number of a character"));
  CHECK_THAT(fault("a\\"), Contains("character 3: the pattern ends"));
  CHECK_THAT(fault("a{3,2}"), Contains("a count whose upper bound is below its lower one"));
  CHECK_THAT(fault("(?s:.)"), Contains("this kind of group is not supported"));
  CHECK_THAT(fault("\xFF"), Contains("it is not UTF-8"));
}

TEST_CASE("split patterns: hostile ones are refused soon") {
  using Catch::Contains;
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(fault("a{1001}"), Contains("character 2: a count above 1000"));
  CHECK_THAT(fault("a{99999999999999999999}"), Contains("a count above 1000"));
  CHECK_THAT(fault("((a{1000}){1000}){1000}"), Contains("repeats more than 5000 states"));
  CHECK_THAT(fault("((?:){1000}){1000}" + std::string{"{1000}"}), Contains("repeats more than 5000 states"));
  CHECK_THAT(fault(repeated("(", 4000)), Contains("character 102: nested more than 100 deep"));
  CHECK_THAT(fault(repeated("[", 4000)), Contains("nested more than 100 deep"));
  CHECK_THAT(fault(repeated("(?i)", 1000)), Contains("nested more than 100 deep"));
  CHECK_THAT(fault("a" + repeated("?", 4000)), Contains("nested more than 100 deep"));
  CHECK_THAT(fault(repeated("a", 9000)), Contains("it has 9000 bytes, at most 4096 are supported"));
  CHECK_THAT(fault("[ab]*a[ab]{40}(?=[ab]{13}a)"), Contains("needs t"));
  std::string many;
  for (char32_t code = 0x4E00; code < 0x4E00 + 300; ++code) slm::utf8::append(many, code);
  CHECK_THAT(fault(many), Contains("more than 200 different characters and classes"));
  for (const std::string& pattern :
       {repeated("(?:a*", 90) + repeated(")*", 90), repeated("(?=a*", 90) + repeated(")", 90), repeated("\\w|", 1300),
        "[" + repeated("\\w", 2000) + "]", repeated("(?i:a)", 680), repeated("a?", 1000) + repeated("a", 2000)}) {
    fault(pattern);
  }
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 30);
}
