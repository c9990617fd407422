// The fields of a request that constrain its answer.
#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "serve/api/fake_service.hpp"
#include "slm/io/json.hpp"

using slm::Json;

namespace {

const serve::ServedModel& model() {
  static const serve::ServedModel demo = serve::test::demo_model();
  return demo;
}

serve::HttpRequest http(const std::string& members) {
  serve::HttpRequest request;
  request.body = R"({"prompt": "def", )" + members + "}";
  return request;
}

serve::TextRequest read(const std::string& members) {
  const serve::HttpRequest request = http(members);
  return serve::read_completion(serve::parse_body(request), model(), {}, request.body);
}

serve::Refusal refusal(const std::string& members) {
  try {
    read(members);
  } catch (const serve::Refusal& refused) {
    CHECK(refused.status == 400);
    return refused;
  }
  return {200, "", ""};
}

bool accepts(const slm::ConstraintRef& constraint, std::string_view text) {
  REQUIRE(constraint != nullptr);
  const auto state = constraint->begin();
  for (const slm::Token token : model().tokenizer.encode(std::string(text), false)) {
    if (!state->advance(token)) return false;
  }
  return state->may_end();
}

bool accepts(const std::string& members, std::string_view text) { return accepts(read(members).constraint, text); }

}  // namespace

TEST_CASE("each field that constrains an answer permits its texts only") {
  const std::string schema = R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "boolean"}},
                                 "required": ["b", "a"], "additionalProperties": false})";
  for (const std::string& members :
       {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": )" +
            schema + "}}",
        R"("response_format": {"type": "json_schema", "schema": )" + schema + "}",
        R"("response_format": {"type": "json_object", "schema": )" + schema + "}",
        R"("structured_outputs": {"json": )" + schema + "}", R"("guided_json": )" + schema,
        R"("guided_json": )" + Json(schema).dump(), R"("json_schema": )" + schema}) {
    INFO(members);
    CHECK(accepts(members, R"({"b": 7, "a": true})"));  // in the order of the request
    CHECK_FALSE(accepts(members, R"({"a": true, "b": 7})"));
    CHECK_FALSE(accepts(members, R"({"b": 7})"));
    CHECK_FALSE(accepts(members, "hello"));
  }
  for (const char* members : {R"("response_format": {"type": "json_object"})", R"("guided_json": {"type": "object"})",
                              R"("structured_outputs": {"json_object": true})"}) {
    INFO(members);
    CHECK(accepts(members, R"({"x": [1, null]})"));
    CHECK_FALSE(accepts(members, "[1]"));
  }
  for (const char* members : {R"("guided_regex": "[ab]{3}")", R"("structured_outputs": {"regex": "[ab]{3}"})",
                              R"("grammar": "root ::= [ab]{3}")", R"("guided_grammar": "root ::= [ab]{3}")",
                              R"("structured_outputs": {"grammar": "root ::= [ab]{3}", "json": null})",
                              R"("guided_choice": ["aba", "bbb"])", R"("structured_outputs": {"choice": ["aba"]})"}) {
    INFO(members);
    CHECK(accepts(members, "aba"));
    CHECK_FALSE(accepts(members, "ab"));
    CHECK_FALSE(accepts(members, "abc"));
  }
  CHECK(accepts(R"("json_schema": {"const": "42"})", "\"42\""));
}

TEST_CASE("a choice's request has the constraint, in chats and completions") {
  const std::string grammar = R"("grammar": "root ::= \"a\"{5,5}")";
  const serve::TextRequest completion = read(grammar + R"(, "n": 2)");
  CHECK(accepts(completion.choice(0, model()).constraint, "aaaaa"));
  CHECK(completion.choice(1, model()).constraint == completion.constraint);
  serve::HttpRequest request;
  request.body = R"({"messages": [{"role": "user", "content": "x"}], )" + grammar + "}";
  const auto chat = serve::read_chat(serve::parse_body(request), model(), {}, request.body);
  CHECK(accepts(chat.choice(0, model()).constraint, "aaaaa"));
  CHECK(read(R"("stream": false)").choice(0, model()).constraint == nullptr);
}

TEST_CASE("options of white space hold for schemas") {
  const std::string schema = R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2})";
  CHECK(accepts(R"("guided_json": )" + schema, "[1, 2]"));
  CHECK_FALSE(accepts(R"("guided_whitespace_pattern": "", "guided_json": )" + schema, "[1, 2]"));
  CHECK(accepts(R"("guided_whitespace_pattern": "\\t?", "guided_json": )" + schema, "[1,\t2]"));
  const std::string options = R"("structured_outputs": {"json": )" + schema;
  CHECK_FALSE(accepts(options + R"(, "disable_any_whitespace": true})", "[1, 2]"));
  CHECK(accepts(options + R"(, "disable_any_whitespace": true})", "[1,2]"));
  CHECK(accepts(options + R"(, "whitespace_pattern": "\\t?"})", "[1,\t2]"));
}

TEST_CASE("fields without a constraint are neutral") {
  for (const char* members :
       {R"("response_format": {"type": "text"})", R"("response_format": {"type": "text", "json_schema": null})",
        R"("response_format": {})", R"("response_format": null)", R"("structured_outputs": {"json": null})",
        R"("structured_outputs": {"json_object": false})", R"("grammar": "")", R"("guided_choice": [])"}) {
    INFO(members);
    CHECK(read(members).constraint == nullptr);
  }
}

TEST_CASE("a wrong grammar is refused with its field and its error") {
  const auto of_grammar = [](const std::string& members, const std::string& field, const std::string& id) {
    INFO(members);
    const serve::Refusal refused = refusal(members);
    CHECK(refused.param == field);
    CHECK(refused.slm_id == id);
    CHECK_THAT(refused.what(), Catch::Matchers::Contains("`" + field + "`"));
  };
  of_grammar(R"("grammar": "root ::= (")", "grammar", "grammar.syntax");
  of_grammar(R"("grammar": "root ::= [a")", "grammar", "grammar.syntax");
  of_grammar(R"("grammar": "root ::= root \"a\" | \"b\"")", "grammar", "grammar.left-recursion");
  of_grammar(R"("guided_regex": "(a)\\1")", "guided_regex", "grammar.unsupported");
  of_grammar(R"("structured_outputs": {"regex": "["})", "structured_outputs", "grammar.syntax");
  of_grammar(R"("guided_json": "{")", "guided_json", "grammar.syntax");
  of_grammar(R"("json_schema": {"type": "nonsense"})", "json_schema", "grammar.schema");
  const std::string format = R"("response_format": {"type": "json_schema")";
  of_grammar(format + R"(, "json_schema": {"schema": {"type": 5}}})", "response_format", "grammar.schema");
  for (const char* rest : {"}", R"(, "json_schema": {}})", R"(, "json_schema": 5})",
                           R"(, "json_schema": {"schema": 1}})", R"(, "json_schema": {"schema": {}, "strict": 1}})"}) {
    of_grammar(format + rest, "response_format", "serve.bad-field");
  }
  of_grammar(R"("response_format": {"type": "xml"})", "response_format", "serve.bad-field");
  of_grammar(R"("response_format": {"type": 5})", "response_format", "serve.bad-field");
  of_grammar(R"("response_format": "json_object")", "response_format", "serve.bad-field");
  of_grammar(R"("guided_json": 5)", "guided_json", "serve.bad-field");
  of_grammar(R"("guided_choice": [5])", "guided_choice", "serve.bad-field");
  of_grammar(R"("structured_outputs": {"structural_tag": "x"})", "structured_outputs", "serve.unsupported");
  of_grammar(R"("structured_outputs": {"regex": 5})", "structured_outputs", "serve.bad-field");
  of_grammar(R"("structured_outputs": {"disable_any_whitespace": true})", "structured_outputs", "serve.bad-field");
  CHECK(refusal(R"("grammar": "root ::= \"a\"", "json_schema": {})").param == "grammar");
  CHECK(refusal(R"("structured_outputs": {"regex": "a", "choice": ["a"]})").param == "structured_outputs");
}

TEST_CASE("equal grammars are compiled once, and the least recently used leave the cache") {
  const std::string schema = R"("json_schema": {"const": "once"})";
  CHECK(read(schema).constraint == read(schema).constraint);
  CHECK(read(schema).constraint != read(schema + R"(, "guided_whitespace_pattern": " ")").constraint);
  CHECK(read(R"("guided_regex": "a")").constraint != read(R"("grammar": "root ::= \"a\"")").constraint);

  serve::ConstraintCache cache(2);
  int compiled = 0;
  const auto get = [&](const char* key) {
    return cache.get(key, model().tokenizer, {}, [&](const slm::TokenTrie& tokens) {
      ++compiled;
      return slm::constrain(slm::Grammar::regex(key), tokens);
    });
  };
  const auto a = get("a");
  get("b");
  CHECK(get("a") == a);
  get("c");  // "b" leaves
  CHECK(compiled == 3);
  CHECK(cache.size() == 2);
  CHECK(get("a") == a);
  get("b");
  CHECK(compiled == 4);
  CHECK_THROWS_AS(get("("), slm::Error);
  CHECK(cache.size() == 2);
}
