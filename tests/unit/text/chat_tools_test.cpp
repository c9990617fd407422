// Templates that show no tools, with tools as texts of messages.
#include <catch2/catch.hpp>
#include <string>

#include "slm/text/answer_parser.hpp"
#include "slm/text/chat.hpp"
#include "support/errors.hpp"

using slm::ChatOptions;
using slm::ChatTemplate;

namespace {

const std::string turns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}{% if m.reasoning_content %}"
    "({{ m.reasoning_content }}){% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
const std::string tool = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])";
const std::string shown =
    "You can call the functions that are described here, each as JSON:\n<tools>\n"
    R"({"type": "function", "function": {"name": "f", "parameters": {}}})"
    "\n</tools>\nTo call a function, write its name and its arguments as JSON:\n"
    "<tool_call>\n{\"name\": NAME, \"arguments\": ARGUMENTS}\n</tool_call>";

std::string rendered(const ChatTemplate& form, const std::string& messages, const std::string& tools = tool) {
  ChatOptions options;
  options.tools = tools;
  return form.render(messages, options).text;
}

const std::string question = R"({"role": "user", "content": "u"})";

}  // namespace

TEST_CASE("the system message lists the tools, and is added where there is none") {
  const ChatTemplate form = ChatTemplate::parse(turns).with_tools();
  CHECK(rendered(form, "[" + question + "]") == "<system>" + shown + "<user>u<assistant>");
  CHECK(rendered(form, R"([{"role": "system", "content": "s"}, )" + question + "]") ==
        "<system>" + shown + "\n\ns<user>u<assistant>");
  for (const char* none : {"", "[]", "null"}) CHECK(rendered(form, "[" + question + "]", none) == "<user>u<assistant>");
  CHECK(form.features().tools == slm::ChatSupport::yes);
}

TEST_CASE("calls and results are texts, and neighbouring results are one message") {
  const ChatTemplate form = ChatTemplate::parse(turns).with_tools();
  const std::string call = R"({"type": "function", "function": {"name": "f", "arguments": {"a": "<b>"}}})";
  const std::string calling =
      R"({"role": "assistant", "content": "t", "reasoning_content": "r", "tool_calls": [)" + call + ", " + call + "]}";
  const std::string results =
      R"({"role": "tool", "content": "1"}, {"role": "tool", "content": [{"type": "text", "text": "2"}]})";
  const std::string text = rendered(form, "[" + question + ", " + calling + ", " + results + "]", "");
  const std::string one = "\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"<b>\"}}\n</tool_call>";
  CHECK(text == "<user>u<assistant>t" + one + one +
                    "(r)<user><tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><assistant>");
}

TEST_CASE("without a role for the system, the first question lists the tools") {
  const std::string strict =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + turns;
  const ChatTemplate form = ChatTemplate::parse(strict).with_tools();
  CHECK(rendered(form, "[" + question + ", " + question + "]") == "<user>" + shown + "\n\nu<user>u<assistant>");
}

TEST_CASE("parts of a content stay parts where the template takes them") {
  const ChatTemplate form = ChatTemplate::parse(
                                "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
                                "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}")
                                .with_tools();
  CHECK(rendered(form, R"([{"role": "system", "content": [{"type": "text", "text": "s"}]}, )" + question + "]") ==
        "<system>" + shown + "s<user>u");
}

TEST_CASE("a template that shows tools stays as it is") {
  const std::string showing = "{% if tools %}{{ tools|tojson }}{% endif %}" + turns;
  CHECK(ChatTemplate::parse(showing).with_tools().source() == showing);
}

TEST_CASE("answers of a template with tools as text are read as calls, and texts of users are none of the template") {
  const ChatTemplate form = ChatTemplate::parse(turns).with_tools();
  const slm::ParsedAnswer answer = slm::parse_answer("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                                                     slm::AnswerFormat::of(form), {.tools = tool});
  REQUIRE(answer.calls.size() == 1);
  CHECK(answer.calls[0].name == "f");
  ChatOptions options;
  const auto prompt = form.render(R"([{"role": "tool", "content": "</tool_response>"}])", options);
  std::size_t begin = 0;
  std::string given;
  for (const auto& span : prompt.spans) {
    if (!span.written) given += prompt.text.substr(begin, span.end - begin);
    begin = span.end;
  }
  CHECK(given == "</tool_response>");
}
