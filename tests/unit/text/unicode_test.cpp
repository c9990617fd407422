// UTF-8, character classes and NFC. The hashes were computed by Python's unicodedata on the same inputs.
#include "slm/text/unicode.hpp"
#include "slm/text/split/char_set.hpp"
#include "slm/text/utf8.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "slm/text/split/char_set.hpp"

namespace utf8 = slm::utf8;
namespace split = slm::split;
namespace unicode = slm::unicode;

namespace {

struct Hash {
  std::uint64_t value = 0xCBF29CE484222325u;
  void add(std::string_view bytes) {
    for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  }
};

std::string of(std::initializer_list<char32_t> codes) {
  std::string text;
  for (const char32_t code : codes) utf8::append(text, code);
  return text;
}

std::string lossy(std::string_view bytes) {
  std::string out;
  utf8::append_lossy(out, bytes);
  return out;
}

template <class Visit>
void each_code(Visit&& visit) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code < 0xD800 || code > 0xDFFF) visit(code);
  }
}

}  // namespace

TEST_CASE("UTF-8: every code point survives writing and reading") {
  std::size_t wrong = 0;
  each_code([&](char32_t code) {
    const std::string text = of({code});
    std::size_t position = 0;
    wrong += !utf8::is_valid(text) || utf8::next(text, position) != code || position != text.size() ||
             utf8::before(text, text.size()) != 0;
  });
  CHECK(wrong == 0);
}

TEST_CASE("UTF-8: what is invalid becomes one U+FFFD for each maximal subpart") {
  CHECK(lossy("abc") == "abc");
  CHECK(lossy("a\xFFz") == "a\uFFFDz");
  CHECK(lossy("\xC0\x80") == "\uFFFD\uFFFD");  // overlong
  CHECK(lossy("\xE2\x82") == "\uFFFD");        // cut off
  CHECK(lossy("\xE2\x82x") == "\uFFFDx");
  CHECK(lossy("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");  // a surrogate
  CHECK(lossy("\xF4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(lossy("\xF0\x9F\x99\xF0\x9F\x99\x82") == "\uFFFD\U0001F642");
  std::string out;
  CHECK(utf8::append_lossy(out, "x\xF0\x9F\x99", true) == 1);  // could still become a character
  CHECK(out == "x");
  CHECK(utf8::append_lossy(out, "\xF0\x9F\x41", true) == 3);
  CHECK(out ==
        "x\uFFFD"
        "A");
}

TEST_CASE("character classes: landmarks and totals") {
  CHECK(unicode::is_letter('a'));
  CHECK(unicode::is_letter(0x65E5));
  CHECK(unicode::is_letter(0x017F));
  CHECK_FALSE(unicode::is_letter(0x0301));
  CHECK_FALSE(unicode::is_letter('_'));
  CHECK(unicode::is_number(0x00BD));
  CHECK(unicode::is_number(0x2167));
  CHECK(unicode::is_number(0x0663));
  CHECK_FALSE(unicode::is_number('a'));
  CHECK(unicode::is_word('_'));
  CHECK(unicode::is_word(0x0301));
  CHECK(unicode::is_word(0x200D));
  CHECK_FALSE(unicode::is_word(0x00BD));
  CHECK_FALSE(unicode::is_word('-'));
  std::set<char32_t> spaces;
  each_code([&](char32_t code) {
    if (unicode::is_space(code)) spaces.insert(code);
  });
  const std::set<char32_t> expected{9,      10,     11,     12,     13,     0x20,   0x85,   0xA0,   0x1680,
                                    0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                    0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  CHECK(spaces == expected);
  CHECK_FALSE(unicode::is_space(0x200B));
  CHECK_FALSE(unicode::is_space(0x1C));
  std::size_t letters = 0, numbers = 0;
  each_code([&](char32_t code) {
    letters += unicode::is_letter(code);
    numbers += unicode::is_number(code);
  });
  CHECK(letters == 141028);
  CHECK(numbers == 1911);
}

TEST_CASE("NFC: landmarks") {
  CHECK(unicode::nfc("plain") == "plain");
  CHECK(unicode::nfc("e\u0301") == "\u00E9");
  CHECK(unicode::nfc("\u212B") == "\u00C5");
  CHECK(unicode::nfc("\u1100\u1161\u11A8") == "\uAC01");  // Hangul
  CHECK(unicode::nfc("\uAC00\u11A8") == "\uAC01");
  CHECK(unicode::nfc("\u0915\u093C") == "\u0915\u093C");  // excluded from composition
  CHECK(unicode::nfc("\u0958") == "\u0915\u093C");
  CHECK(unicode::nfc("a\u0301\u0327") == "\u00E1\u0327");  // reordered, then composed past the cedilla
  CHECK(unicode::nfc("a\u0327\u0301") == "\u00E1\u0327");
  CHECK(unicode::nfc("\u0344") == "\u0308\u0301");
  CHECK(unicode::nfc("e\u0301\u0301") == "\u00E9\u0301");  // the second acute is blocked
}

TEST_CASE("NFC: every code point, composed and decomposed, by hash") {
  const auto& tables = unicode::Normalization::tables();
  Hash hash;
  std::size_t changed_twice = 0, glance_wrong = 0;
  each_code([&](char32_t code) {
    std::u32string parts;
    tables.decompose(code, parts);
    std::string apart;
    for (const char32_t part : parts) utf8::append(apart, part);
    const std::string normal = unicode::nfc(of({code}));
    glance_wrong += unicode::is_nfc_at_a_glance(of({code})) && apart != of({code}) && unicode::nfc(apart) != of({code});
    changed_twice += unicode::nfc(normal) != normal;
    hash.add(normal);
    hash.add(apart);
    hash.add(unicode::nfc(apart + "\u0301"));
  });
  CHECK(glance_wrong == 0);
  CHECK(changed_twice == 0);
  CHECK(hash.value == 0x8e31b46ec03d40cdu);
}

TEST_CASE("NFC: random sequences of marks and bases, by hash") {
  const std::vector<char32_t> alphabet{'a',    'e',    'o',    0x300,   0x301,   0x308,  0x316,  0x323, 0x327, 0x328,
                                       0x345,  0x1100, 0x1161, 0x11A8,  0xAC00,  0xAC01, 0x915,  0x93C, 0x958, 0x212B,
                                       0x1EA5, 0x1E69, 0xFB1D, 0x1D15E, 0x2F800, 0x3099, 0x30AB, 0x9C7, 0x9BE, 0x4E2D};
  Hash hash;
  std::uint32_t seed = 12345;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    seed = seed * 1664525u + 1013904223u;
    const unsigned length = (seed >> 16) % 9;
    for (unsigned k = 0; k < length; ++k) {
      seed = seed * 1664525u + 1013904223u;
      utf8::append(text, alphabet[(seed >> 16) % alphabet.size()]);
    }
    hash.add(unicode::nfc(text));
    hash.add("|");
  }
  CHECK(hash.value == 0x3044eed3009d0e21u);
}

TEST_CASE("NFC: a long run of marks in the worst order takes no quadratic time") {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0327";
  const std::string normal = unicode::nfc(text);
  CHECK(utf8::count(normal) == 200000);
  CHECK(normal.starts_with("\u00E1\u0327\u0327"));
}

TEST_CASE("sets of properties are those of Oniguruma in Hugging Face's tokenizers, and agree with the classes") {
  const auto size = [](const split::CharSet& set) {
    std::size_t codes = 0;
    for (const auto& range : set.ranges()) codes += range.last - range.first + 1;
    return codes;
  };
  const auto property = [](const char* name) { return split::property_set(name).value(); };
  // How many characters each of these expressions matched there.
  CHECK(size(property("L")) == 141028);
  CHECK(size(property("Lu")) == 1858);
  CHECK(size(property("Ll")) == 2258);
  CHECK(size(property("Lt")) == 31);
  CHECK(size(property("M")) == 2501);
  CHECK(size(property("N")) == 1911);
  CHECK(size(property("Nd")) == 760);
  CHECK(size(property("P")) == 855);
  CHECK(size(property("S")) == 8514);
  CHECK(size(property("Han")) == 99030);
  CHECK(size(split::space_set()) == 25);
  CHECK(size(split::plain_word_set()) == 144671);
  CHECK(size(split::word_set()) == 144665);
  CHECK(property("uppercase letter") == property("LU"));
  CHECK(property("Any").complement().ranges().empty());
  CHECK(!split::property_set("Foo"));
  CHECK(unicode::property_version == unicode::class_version);
  const split::CharSet letters = property("L"), numbers = property("N"), spaces = split::space_set(),
                       words = split::word_set();
  for (char32_t code = 0; code <= split::CharSet::last_code; ++code) {
    const bool joiner = code == 0x200C || code == 0x200D;
    const bool same =
        letters.contains(code) == unicode::is_letter(code) && numbers.contains(code) == unicode::is_number(code) &&
        spaces.contains(code) == unicode::is_space(code) && (words.contains(code) || joiner) == unicode::is_word(code);
    if (!same) FAIL("U+" << std::hex << static_cast<unsigned>(code));
  }
}

TEST_CASE("sets of characters are united, cut and turned round") {
  using split::CharSet;
  const CharSet low({{'a', 'f'}, {'x', 'x'}, {'d', 'k'}, {'l', 'l'}});
  CHECK(low == CharSet({{'a', 'l'}, {'x', 'x'}}));
  CHECK(low.contains('l'));
  CHECK(!low.contains('m'));
  CHECK(low.complement().complement() == low);
  CHECK(low.intersected(CharSet({{'k', 'z'}})) == CharSet({{'k', 'l'}, {'x', 'x'}}));
  CHECK(CharSet().complement() == CharSet({{0, CharSet::last_code}}));
  CHECK(split::folded_set(CharSet({{'k', 'k'}})) == CharSet({{'K', 'K'}, {'k', 'k'}, {0x212A, 0x212A}}));
  CHECK(split::folded_set(CharSet({{0x17F, 0x17F}})) == CharSet({{'S', 'S'}, {'s', 's'}, {0x17F, 0x17F}}));
  CHECK(split::folded_set(CharSet({{'1', '1'}})) == CharSet({{'1', '1'}}));
}
