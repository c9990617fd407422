// Added tokens: leftmost, longest, and the four flags.
#include "slm/text/added_tokens.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

using slm::AddedToken;
using slm::AddedTokens;

namespace {

AddedToken token(slm::Token id, std::string content) {
  AddedToken made;
  made.id = id;
  made.content = std::move(content);
  return made;
}

/// "[text]" for text and "<id>" for tokens, in order.
std::string split(const AddedTokens& tokens, std::string_view text) {
  std::string out;
  tokens.split(
      text, [&](std::string_view piece) { out += "[" + std::string{piece} + "]"; },
      [&](slm::Token id) { out += "<" + std::to_string(id) + ">"; });
  return out;
}

}  // namespace

TEST_CASE("added tokens: leftmost, then longest") {
  const AddedTokens tokens({token(1, "ab"), token(2, "abc"), token(3, "bcd"), token(4, "abcde"), token(5, "d")});
  CHECK(split(tokens, "xabcdx") == "[x]<2><5>[x]");
  CHECK(split(tokens, "abcde") == "<4>");
  CHECK(split(tokens, "bcd") == "<3>");
  CHECK(split(tokens, "aab") == "[a]<1>");
  CHECK(split(tokens, "") == "");
  CHECK(split(AddedTokens(), "abc") == "[abc]");
  CHECK(split(AddedTokens({token(1, "")}), "abc") == "[abc]");
}

TEST_CASE("added tokens agree with a search of every token at every place") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<AddedToken> list;
    const auto word = [&](std::size_t longest) {
      std::string made;
      for (std::size_t left = 1 + random() % longest; left > 0; --left) made += static_cast<char>('a' + random() % 2);
      return made;
    };
    for (int id = 0; id < 6; ++id) list.push_back(token(id, word(5)));
    const std::string text = word(40);
    std::string expected, plain;
    for (std::size_t position = 0; position < text.size();) {
      const AddedToken* best = nullptr;
      for (const AddedToken& candidate : list) {
        const bool here = text.compare(position, candidate.content.size(), candidate.content) == 0;
        if (here && (best == nullptr || candidate.content.size() > best->content.size())) best = &candidate;
      }
      if (best == nullptr) {
        plain += text[position++];
        continue;
      }
      if (!plain.empty()) expected += "[" + plain + "]";
      plain.clear();
      expected += "<" + std::to_string(best->id) + ">";
      position += best->content.size();
    }
    if (!plain.empty()) expected += "[" + plain + "]";
    CHECK(split(AddedTokens(list), text) == expected);
  }
}

TEST_CASE("added tokens: lstrip and rstrip swallow Unicode white space, not text") {
  AddedToken left = token(1, "<l>"), right = token(2, "<r>");
  left.lstrip = true;
  right.rstrip = true;
  const AddedTokens tokens({left, right});
  CHECK(split(tokens, "a \t\u3000<l> b") == "[a]<1>[ b]");
  CHECK(split(tokens, "a <r>\n\u00A0 b") == "[a ]<2>[b]");
  CHECK(split(tokens, "<r>  <l>x") == "<2><1>[x]");
  CHECK(split(tokens, "  <l>") == "<1>");
  CHECK(split(tokens, "<r>   ") == "<2>");
}

TEST_CASE("added tokens: single_word does not match inside a word") {
  AddedToken word = token(1, "cat");
  word.single_word = true;
  const AddedTokens tokens({word});
  CHECK(split(tokens, "a cat.") == "[a ]<1>[.]");
  CHECK(split(tokens, "cat") == "<1>");
  CHECK(split(tokens, "concat") == "[concat]");
  CHECK(split(tokens, "cats") == "[cats]");
  CHECK(split(tokens, "cat_") == "[cat_]");
  CHECK(split(tokens, "\u00E9cat") == "[\u00E9cat]");
  CHECK(split(tokens, "cat\u0301") == "[cat\u0301]");
  CHECK(split(tokens, "\u65E5 cat \u65E5") == "[\u65E5 ]<1>[ \u65E5]");
}
