// Hostile grammars: an error within the limits, or a grammar whose masks stay within them.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/thread_time.hpp"
#include "slm/grammar.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/structure.hpp"

using slm::Constraint;
using slm::Grammar;
using slm::testing::error_id;
using slm::testing::OrderedJson;
using slm::testing::structure;

namespace {

std::string repeated(const std::string& part, std::size_t times) {
  std::string whole;
  for (std::size_t i = 0; i < times; ++i) whole += part;
  return whole;
}

}  // namespace

TEST_CASE("inputs that have stopped other programs") {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  const slm::TokenTrie tokens(bytes, {});
  const OrderedJson fixtures = structure("limits.json");
  for (const OrderedJson& row : fixtures["rows"]) {
    const std::string name = row["name"], want = row["want"];
    CAPTURE(name);
    const auto begin = std::chrono::steady_clock::now();
    try {
      const Grammar grammar = slm::testing::grammar_of(row);
      CHECK(want != "error");
      Constraint constraint(grammar);
      for (int step = 0; step < 64; ++step) {
        const auto bits = slm::testing::mask_of(constraint, tokens);
        std::size_t token = 0;
        while (token < 256 && !slm::testing::allows(bits, token)) ++token;
        if (token == 256) {
          CHECK(constraint.may_end());
          break;
        }
        CHECK(constraint.advance(bytes[token]) == 1);
      }
    } catch (const slm::Error& error) {
      CAPTURE(error.what());
      CHECK(want != "ok");
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  }
}

TEST_CASE("large and deep inputs are errors") {
  CHECK(error_id([] { Grammar::json_schema(repeated(" ", 10 << 20) + "{}"); }) == "grammar.limit");
  CHECK(error_id([] { Grammar::json_schema(repeated("[", 100'000)); }) == "grammar.limit");
  CHECK(error_id([] { Grammar::regex(repeated("(", 100'000) + repeated(")", 100'000)); }) == "grammar.syntax");
  CHECK(error_id([] { Grammar::gbnf("root ::= " + repeated("(", 100'000)); }) == "grammar.syntax");
  CHECK(error_id([] { Grammar::regex("a{1000001}"); }) == "grammar.limit");
  CHECK(error_id([] { Grammar::regex(repeated("a?", 1000)); }) == "no error");
  CHECK(error_id([] { Grammar::gbnf("root ::= \"\xFF\""); }) == "grammar.syntax");
}

TEST_CASE("recursion without an end or at the beginning is an error") {
  CHECK(error_id([] { Grammar::json_schema(R"({"$ref": "#"})"); }) == "grammar.schema");
  CHECK(error_id([] {
          Grammar::json_schema(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"],
                                              "type": "object"})");
        }) == "grammar.unsatisfiable");
  CHECK(error_id([] { Grammar::json_schema(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"); }) != "no error");
  CHECK(error_id([] { Grammar::gbnf("root ::= root \"a\" | \"b\""); }) == "grammar.left-recursion");
  CHECK(error_id([] { Grammar::gbnf("root ::= \"a\" root"); }) == "grammar.unsatisfiable");
  CHECK(error_id([] { Grammar::gbnf("x ::= \"a\""); }) == "grammar.syntax");
}

TEST_CASE("a chain of many rules or references needs no deep stack") {
  std::string rules = "root ::= r0\n", schema = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 5000; ++i) {
    const std::string own = std::to_string(i), next = std::to_string(i + 1);
    rules += "r" + own + " ::= \"a\" r" + next + "\n";
    schema += "\"d" + own + R"(": {"properties": {"x": {"$ref": "#/$defs/d)" + next + R"("}}},)";
  }
  CHECK(error_id([&] { Grammar::gbnf(rules + "r5000 ::= \"b\""); }) == "no error");
  const std::string found = error_id([&] { Grammar::json_schema(schema + R"("d5000": {}}})"); });
  CHECK((found == "no error" || found == "grammar.limit"));
}

TEST_CASE("all work on a text has a limit of time") {
  slm::GrammarLimits limits;
  limits.states = 10'000'000;
  limits.memory = std::size_t{4} << 30;
  limits.mask_seconds = 0.005;
  // Whether a text may begin with a or b takes half a million states to decide: none may.
  const Grammar grammar = Grammar::json_schema(R"({"type": "string", "allOf": [
    {"pattern": "^(x|(a|b)*a(a|b){18})$"}, {"pattern": "^(x|(a|b)*b(a|b){18})$"}]})",
                                               {}, limits);
  Constraint constraint(grammar);
  CHECK(constraint.advance("\"") == 1);
  CHECK(error_id([&] { constraint.advance("a"); }) == "grammar.limit");
  CHECK(error_id([&] { constraint.forced(); }) == "grammar.limit");
  CHECK(constraint.length() == 1);
  CHECK(constraint.advance("x\"") == 2);
  CHECK(constraint.must_end());
}

TEST_CASE("long names in a schema are not copied for each value below them") {
  const std::string schema = "{\"" + repeated("n", 500'000) + "\": [[]" + repeated(",[]", 160'000) + "]}";
  const double begin = slm::detail::thread_seconds();
  CHECK(error_id([&] { Grammar::json_schema(schema); }) == "no error");
  CHECK(slm::detail::thread_seconds() - begin < 2);
}

TEST_CASE("an automaton that grows without end meets its limit") {
  slm::GrammarLimits limits;
  limits.states = 2000;
  const Grammar grammar = Grammar::regex("(a|b)*a(a|b){200}", limits);
  Constraint constraint(grammar);
  std::uint32_t random = 1;
  const auto next = [&] {
    random = random * 1664525u + 1013904223u;
    return random >> 31 != 0 ? "a" : "b";
  };
  CHECK(error_id([&] {
          for (int i = 0; i < 5000; ++i) constraint.advance(next());
        }) == "grammar.limit");
  // A new constraint of the same grammar is not affected.
  CHECK(Constraint(grammar).advance("ab") == 2);
}
