// JSON schemas: the public test suite, schemas from practice, and the forms of texts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "slm/core/error.hpp"
#include "slm/grammar.hpp"
#include "tests/support/structure.hpp"

using slm::Grammar;
using slm::testing::OrderedJson;
using slm::testing::structure;
using slm::testing::take;
using slm::testing::take_whole;

namespace {

void check_cases(const std::string& file) {
  for (const OrderedJson& row : structure("json-schema/" + file)) {
    const std::string id = row["id"], compile = row["compile"];
    CAPTURE(id);
    try {
      const Grammar grammar = Grammar::json_schema(row["schema"].dump());
      CHECK(compile != "unsatisfiable");
      for (const OrderedJson& test : row["tests"]) {
        const std::string text = test["text"], expected = test["slm"];
        CAPTURE(text);
        const auto taken = take(grammar, text);
        CHECK(take_whole(grammar, text).bytes == taken.bytes);
        if (expected != "any") CHECK(taken.accepted == (expected == "accept"));
        if (test.contains("bytes_taken")) CHECK(taken.bytes == test["bytes_taken"].get<std::size_t>());
      }
    } catch (const slm::Error& error) {
      const std::string message = error.what();
      CAPTURE(message);
      CHECK(compile != "ok");
      if (!row.contains("unsupported_at") || row["unsupported_at"].empty()) continue;
      const auto& places = row["unsupported_at"];
      CHECK(std::any_of(places.begin(), places.end(), [&](const OrderedJson& place) {
        return message.find(place.get<std::string>()) != message.npos;
      }));
    }
  }
}

}  // namespace

TEST_CASE("schemas of the public test suite") { check_cases("suite.json"); }
TEST_CASE("schemas from practice") { check_cases("bench.json"); }
TEST_CASE("forms of JSON texts") { check_cases("custom.json"); }

TEST_CASE("white space is as the options say") {
  const std::string schema = R"({"type": "array", "items": {"type": "integer"}})";
  slm::JsonOptions options;
  options.compact = true;
  CHECK(take(Grammar::json_schema(schema, options), "[1,2]").accepted);
  CHECK(take(Grammar::json_schema(schema, options), "[1, 2]").bytes == 3);
  options = {};
  options.whitespace_pattern = " {0,3}";
  CHECK(take(Grammar::json_schema(schema, options), "[   1   ,2]").accepted);
  CHECK_FALSE(take(Grammar::json_schema(schema, options), "[\n1]").accepted);
  options.whitespace_pattern = "[ x]?";
  CHECK_THROWS_AS(Grammar::json_schema(schema, options), slm::Error);
}

TEST_CASE("any JSON object") {
  const Grammar grammar = Grammar::json();
  CHECK(take(grammar, R"({"a": [1, {"b": null}], "c": "\n", "d": -1.5e+3})").accepted);
  CHECK_FALSE(take(grammar, "[]").accepted);
  CHECK_FALSE(take(grammar, "{} ").accepted);
}
