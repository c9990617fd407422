// Grammars of calls in the forms of chat templates, and of what follows reasoning.
#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "serve/api/calling_server.hpp"
#include "slm/chat/answer_grammar.hpp"
#include "slm/io/json.hpp"
#include "support/templates.hpp"

using serve::test::call_text;
using serve::test::CallingServer;
using serve::test::two_tools;
using slm::Json;

namespace {

/// Whether the answer to a request may be the text.
bool accepts(CallingServer& server, const std::string& members, std::string_view text) {
  server.service->asked.clear();
  server.begin(members);
  REQUIRE(server.service->asked.size() == 1);
  const slm::ConstraintRef constraint = server.service->asked.back().request.constraint;
  REQUIRE(constraint != nullptr);
  const auto state = constraint->begin();
  for (const slm::Token token : server.model.tokenizer.encode(std::string(text), false)) {
    if (!state->advance(token)) return false;
  }
  return state->may_end();
}

/// The longest text of the grammar in the text; empty: there is none.
std::string longest_in(const slm::Grammar& grammar, std::string_view text) {
  std::string longest;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    slm::Constraint constraint(grammar);
    for (std::size_t end = begin; end < text.size() && constraint.advance(text.substr(end, 1)) == 1; ++end) {
      if (constraint.may_end() && end + 1 - begin > longest.size()) longest = text.substr(begin, end + 1 - begin);
    }
  }
  return longest;
}

}  // namespace

TEST_CASE("a required answer is a call of an offered tool, with arguments of its schema") {
  CallingServer server;
  const std::string city = R"({"city": "x", "days": 2})";
  for (const char* choice : {R"("required")", R"({"type": "function", "function": {"name": "get_weather"}})"}) {
    const std::string members = two_tools(std::string(R"(, "tool_choice": )") + choice);
    CHECK(accepts(server, members, call_text("get_weather", city)));
    CHECK_FALSE(accepts(server, members, call_text("get_weather", R"({"days": 2})")));
    CHECK_FALSE(accepts(server, members, call_text("get_weather", R"({"city": 5})")));
    CHECK_FALSE(accepts(server, members, call_text("other", city)));
    CHECK_FALSE(accepts(server, members, "yes"));
    CHECK(accepts(server, members, call_text("now", "{}")) == (choice == std::string(R"("required")")));
    CHECK_FALSE(accepts(server, members, call_text("now", R"({"a": 1})")));
  }
}

TEST_CASE("an answer with a form may be a call where tools are offered") {
  CallingServer server;
  const std::string members = two_tools(R"(, "response_format": {"type": "json_object"})");
  CHECK(accepts(server, members, R"({"a": 1})"));
  CHECK(accepts(server, members, call_text("now", "{}")));
  CHECK_FALSE(accepts(server, members, "yes"));
  CHECK_FALSE(accepts(server, R"("response_format": {"type": "json_object"})", call_text("now", "{}")));
}

TEST_CASE("constraints begin behind the reasoning") {
  CallingServer open("<think>\n");
  const std::string members = R"("guided_choice": ["yes"])";
  CHECK(accepts(open, members, "a <b> </th\n</think>\n\nyes"));
  CHECK(accepts(open, members, "</think>yes"));
  CHECK_FALSE(accepts(open, members, "yes"));
  CHECK_FALSE(accepts(open, members, "a</think>no"));
  CHECK(accepts(open, two_tools(R"(, "tool_choice": "required")"), "a\n</think>\n\n" + call_text("now", "{}")));
  CHECK_FALSE(accepts(open, two_tools(R"(, "tool_choice": "required")"), call_text("now", "{}")));

  CallingServer optional("{% if enable_thinking == false %}<think>\n\n</think>\n\n{% endif %}");
  CHECK(accepts(optional, members, "yes"));
  CHECK(accepts(optional, members, "<think>\nso\n</think>\n\nyes"));
  CHECK_FALSE(accepts(optional, members, "<think>\nso"));
  const std::string off = members + R"(, "enable_thinking": false)";
  CHECK(accepts(optional, off, "yes"));
  CHECK_FALSE(accepts(optional, off, "<think>\nso\n</think>\n\nyes"));

  CallingServer asked("{% if enable_thinking %}<think>\n{% endif %}");  // the template begins it, if at all
  CHECK(accepts(asked, members, "yes"));
  CHECK_FALSE(accepts(asked, members, "<think>\nso\n</think>\n\nyes"));
  CHECK_FALSE(accepts(asked, members + R"(, "enable_thinking": true)", "yes"));
  CHECK(accepts(asked, members + R"(, "enable_thinking": true)", "so\n</think>\n\nyes"));

  CallingServer plain;
  CHECK_FALSE(accepts(plain, members, "<think>\nso\n</think>\n\nyes"));
}

TEST_CASE("a template without calls in JSON refuses to require one") {
  CallingServer server;
  const slm::ChatTemplate form = slm::ChatTemplate::parse(
      R"({{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>)"
      R"(<function={{ c.function.name }}>{% endfor %}{% endfor %})");
  CHECK_FALSE(slm::CallForm::of(form, slm::AnswerFormat::of(form)));
  const slm::ChatTemplate none = slm::ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK_FALSE(slm::CallForm::of(none, slm::AnswerFormat::of(none)));
}

TEST_CASE("a wrong schema of a tool is refused where calls are required") {
  CallingServer server;
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}])";
  const auto out = server.answer(tools + R"(, "tool_choice": "required")", "");
  CHECK(out.status == 400);
  CHECK(out.json()["error"]["param"] == "tools");
  CHECK(out.json()["error"]["slm_id"] == "grammar.schema");
  CHECK_FALSE(server.begin(tools) == nullptr);
}

TEST_CASE("the calls of published templates are read back", "[chat]") {
  SLM_SKIP_WITHOUT(slm::testing::published_template("SOURCE.txt"), "the folder chat_templates");
  int found = 0;
  for (const auto& example : slm::testing::template_cases("features.json")) {
    const std::string file = example["template"];
    CAPTURE(file);
    const slm::ChatTemplate form = slm::ChatTemplate::parse(
        slm::testing::file_text(slm::testing::published_template(file)), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const slm::AnswerFormat format = slm::AnswerFormat::of(form);
    const auto calls = slm::CallForm::of(form, format);
    if (!calls) continue;
    ++found;
    const std::string schema =
        R"({"type": "object", "properties": {"kq7z": {"type": "string"}}, "required": ["kq7z"]})";
    const std::string tools = R"([{"type": "function", "function": {"name": "fq7z", "parameters": )" + schema + "}}]";
    const slm::CallSignature tool{"fq7z", schema};
    const std::string text = longest_in(calls->call({&tool, 1}), form.features().call_text);
    CAPTURE(form.features().call_text, text);
    const slm::ParsedAnswer answer = slm::parse_answer(text, format, {.tools = tools});
    CHECK(answer.content.empty());
    REQUIRE(answer.calls.size() == 1);
    CHECK(answer.calls[0].name == "fq7z");
    CHECK(Json::parse(answer.calls[0].arguments) == Json{{"kq7z", "vq7z"}});
  }
  CHECK(found >= 10);
}
