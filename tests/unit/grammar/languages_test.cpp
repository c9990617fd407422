// Regular expressions, choices and GBNF: the texts of the fixtures, and the inputs that must be errors.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar.hpp"
#include "slm/text/utf8.hpp"
#include "tests/support/structure.hpp"

using slm::Grammar;
using slm::testing::OrderedJson;
using slm::testing::structure;
using slm::testing::take;
using slm::testing::take_whole;

namespace {

/// Bytes of the first characters of a text.
std::size_t bytes_of(const std::string& text, std::size_t characters) {
  std::size_t position = 0;
  for (; characters > 0; --characters) slm::utf8::next(text, position);
  return position;
}

void check_texts(const Grammar& grammar, const OrderedJson& row) {
  for (const std::string text : row["accept"]) {
    CAPTURE(text);
    CHECK(take(grammar, text).accepted);
    CHECK(take_whole(grammar, text).accepted);
  }
  for (const OrderedJson& rejected : row["reject"]) {
    const std::string text = rejected.is_string() ? rejected : rejected["text"];
    CAPTURE(text);
    const auto taken = take(grammar, text);
    CHECK_FALSE(taken.accepted);
    CHECK(take_whole(grammar, text).bytes == taken.bytes);
    if (rejected.is_string()) continue;
    if (rejected.contains("bytes_taken")) CHECK(taken.bytes == rejected["bytes_taken"].get<std::size_t>());
    if (!rejected.contains("characters_taken")) continue;
    // Of a refused character, the first bytes may be those of an allowed one.
    const auto characters = rejected["characters_taken"].get<std::size_t>();
    CHECK(slm::utf8::valid_prefix(text.substr(0, taken.bytes)) == bytes_of(text, characters));
  }
}

template <class Compile>
void check_error(const OrderedJson& row, Compile&& compile) {
  CAPTURE(row.dump());
  try {
    compile();
    CHECK_FALSE(row.value("must_error", true));
  } catch (const slm::Error& error) {
    CHECK(error.id().starts_with("grammar."));
  }
}

}  // namespace

TEST_CASE("regular expressions take the texts of the fixtures") {
  const OrderedJson fixtures = structure("regex.json");
  for (const OrderedJson& row : fixtures["patterns"]) {
    const std::string pattern = row["pattern"];
    CAPTURE(pattern);
    check_texts(Grammar::regex(pattern), row);
  }
  for (const OrderedJson& row : fixtures["errors"]) {
    check_error(row, [&] { Grammar::regex(row["pattern"].get<std::string>()); });
  }
}

TEST_CASE("choices take their texts and nothing else") {
  const OrderedJson fixtures = structure("choice.json");
  for (const OrderedJson& row : fixtures["choices"]) {
    check_texts(Grammar::choice(row["choice"].get<std::vector<std::string>>()), row);
  }
  CHECK_THROWS_AS(Grammar::choice({}), slm::Error);
  const std::vector<std::string> bytes{"\xFF"};
  CHECK_THROWS_AS(Grammar::choice(bytes), slm::Error);
}

TEST_CASE("grammars in llama.cpp's syntax take the texts of the fixtures") {
  const OrderedJson fixtures = structure("gbnf.json");
  for (const OrderedJson& row : fixtures["grammars"]) {
    const std::string written = row["grammar"];
    CAPTURE(written);
    try {
      check_texts(Grammar::gbnf(written), row);
    } catch (const slm::Error& error) {
      CAPTURE(error.what());
      CHECK(row["compile"] == "either");
      CHECK(error.id() == "grammar.left-recursion");
    }
  }
  for (const OrderedJson& row : fixtures["errors"]) {
    check_error(row, [&] { Grammar::gbnf(row["grammar"].get<std::string>()); });
  }
}

TEST_CASE("errors name the position") {
  const auto message = [](auto&& compile) -> std::string {
    try {
      compile();
    } catch (const slm::Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message([] { Grammar::regex("ab(?=c)"); }), Catch::Contains("byte 2") && Catch::Contains("look-around"));
  CHECK_THAT(message([] { Grammar::regex("(a)\\1"); }), Catch::Contains("byte 3"));
  CHECK_THAT(message([] { Grammar::gbnf("root ::= a"); }), Catch::Contains("byte 9"));
  CHECK_THAT(message([] { Grammar::gbnf("root ::= x \"1\"\nx ::= root \"2\" | \"3\""); }), Catch::Contains("rule"));
  CHECK_THAT(message([] { Grammar::json_schema(R"({"properties": {"age": {"not": {}}}})"); }),
             Catch::Contains("json_schema/properties/age/not: 'not' is not supported"));
}
