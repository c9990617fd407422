// Answers of models, whole and cut at every byte: reasoning, content and calls.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/chat.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/templates.hpp"

using namespace slm;
using testing::OrderedJson;

namespace {

/// The forms of the cases that have other names here.
std::string form_of(const std::string& name) {
  static const std::map<std::string, std::string> names{{"smollm3", "hermes"},           {"llama3-json", "llama3"},
                                                        {"llama3-python-tag", "llama3"}, {"mistral-json", "mistral"},
                                                        {"mistral-args", "mistral"},     {"deepseek-r1", "deepseek"},
                                                        {"deepseek-v3.1", "deepseek"},   {"glm4.5", "glm"}};
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

struct Example {
  explicit Example(const OrderedJson& example)
      : text(example["model_text"]),
        tools(example["tools"].dump()),
        format(AnswerFormat::named(form_of(example["format"]))) {
    options.tools = tools;
    options.begins_in_reasoning = example["thinking_open"];
  }
  Example(const Example&) = delete;
  Example& operator=(const Example&) = delete;

  std::string text, tools;
  AnswerFormat format;
  AnswerOptions options;
};

/// The answer from pieces of these lengths; the last one is repeated.
ParsedAnswer in_pieces(const Example& example, const std::vector<std::size_t>& lengths) {
  AnswerParser parser(example.format, example.options);
  ParsedAnswer answer;
  std::size_t number = 0;
  for (std::size_t at = 0; at < example.text.size();) {
    const std::string piece = example.text.substr(at, lengths[std::min(number++, lengths.size() - 1)]);
    for (AnswerPart& part : parser.push(piece)) answer.add(std::move(part));
    at += piece.size();
  }
  for (AnswerPart& part : parser.finish()) answer.add(std::move(part));
  return answer;
}

Json json_of(const ParsedAnswer& answer) {
  Json calls = Json::array();
  for (const ToolCall& call : answer.calls)
    calls.push_back({{"name", call.name}, {"arguments", Json::parse(call.arguments)}});
  return {{"content", answer.content}, {"reasoning_content", answer.reasoning}, {"tool_calls", calls}};
}

Json texts_of(const ParsedAnswer& answer) {
  Json calls = Json::array();
  for (const ToolCall& call : answer.calls) calls.push_back({call.name, call.arguments, call.id});
  return {answer.content, answer.reasoning, calls};
}

const OrderedJson& cases() {
  static const OrderedJson all = OrderedJson::parse(testing::file_text(testing::fixture("tools/cases.json")));
  return all;
}

}  // namespace

TEST_CASE("answers of every family have their reasoning, content and calls") {
  for (const OrderedJson& example : cases()) {
    CAPTURE(example["id"], example["model_text"]);
    const Example given(example);
    Json expected = Json::parse(example["expected"].dump());
    expected.erase("finish_reason");
    for (Json& call : expected["tool_calls"]) call.erase("id");
    CHECK(json_of(in_pieces(given, {given.text.size()})) == expected);
    const std::string again = "12345678901234567890";
    if (example["rule"] == "numbers") {
      CHECK(parse_answer(given.text, given.format, given.options).calls[0].arguments.find(again) != std::string::npos);
    }
  }
}

TEST_CASE("an answer does not depend on the pieces it arrives in") {
  for (const OrderedJson& example : cases()) {
    CAPTURE(example["id"], example["model_text"]);
    const Example given(example);
    const Json whole = texts_of(parse_answer(given.text, given.format, given.options));
    std::size_t wrong = 0;
    for (std::size_t cut = 1; cut < given.text.size(); ++cut) {
      wrong += texts_of(in_pieces(given, {cut, given.text.size()})) != whole;
    }
    CHECK(wrong == 0);
    for (const std::size_t length : {1, 2, 3, 7}) CHECK(texts_of(in_pieces(given, {length})) == whole);
  }
}

TEST_CASE("text is returned at once unless it may become a tag, and a call when it is complete") {
  AnswerParser parser(AnswerFormat::named("hermes"));
  const auto said = [&parser](std::string_view piece) {
    std::string all;
    for (const AnswerPart& part : parser.push(piece)) {
      all += part.kind == AnswerPart::Kind::call ? "[" + part.call.name + part.call.arguments + "]" : part.text;
    }
    return all;
  };
  CHECK(said("H") == "H");
  CHECK(said("i <") == "i");
  CHECK(said("tool") == "");
  CHECK(said("s>") == " <tools>");
  CHECK(said("\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}") == "");
  CHECK(said("}") == "");
  CHECK(said("</tool_call>") == "[f{\"a\": 1}]");
  CHECK(said("\nok") == "\nok");
  CHECK(parser.finish().empty());
}

TEST_CASE("calls are content where they are not read, and reasoning is still separate") {
  const std::string text = "<think>a</think><tool_call>{\"name\": \"f\"}</tool_call>";
  const ParsedAnswer answer = parse_answer(text, AnswerFormat::named("hermes"), {.reads_calls = false});
  CHECK(answer.reasoning == "a");
  CHECK(answer.content == "<tool_call>{\"name\": \"f\"}</tool_call>");
  CHECK(answer.calls.empty());
}

TEST_CASE("deep, long and repeated texts take linear time and no stack") {
  const std::string deep(100000, '['), braces(100000, '{');
  for (const std::string& name : AnswerFormat::names()) {
    const AnswerFormat format = AnswerFormat::named(name);
    std::string tags;
    for (const std::string& tag : format.tags()) tags += tag;
    std::string repeated;
    while (repeated.size() < 200000) repeated += tags + "f{\"a\": [\"<\", ";
    for (const std::string& body : {deep, braces, repeated, "f(a=" + deep, "call:f{a:" + deep, "f[ARGS]" + braces}) {
      const std::string text = tags + body;
      ParsedAnswer answer;
      AnswerParser parser(format);
      for (std::size_t at = 0; at < text.size(); at += 500) {
        for (AnswerPart& part : parser.push(std::string_view(text).substr(at, 500))) answer.add(std::move(part));
      }
      for (AnswerPart& part : parser.finish()) answer.add(std::move(part));
      CHECK(answer.content.size() + answer.reasoning.size() <= text.size());
    }
  }
}

TEST_CASE("arguments that a later request could not contain are content") {
  for (const char* arguments : {R"({"a": 1, "a": 2})", R"({"a": "\ud800"})", "{\"a\": \"\xff\"}"}) {
    const std::string text = R"(<tool_call>{"name": "f", "arguments": )" + std::string(arguments) + "}</tool_call>";
    const ParsedAnswer answer = parse_answer(text, AnswerFormat::named("hermes"));
    CHECK(answer.calls.empty());
    CHECK(answer.content == text);
  }
}

TEST_CASE("a name that is no form, and tools that are no list, are errors") {
  CHECK(testing::error_id([] { AnswerFormat::named("nothing"); }) == "chat.unknown-format");
  CHECK(testing::error_id([] { AnswerParser(AnswerFormat(), {.tools = "{}"}); }) == "chat.bad-options");
  CHECK(testing::error_id([] { AnswerParser(AnswerFormat(), {.tools = "[1,"}); }) == "json.malformed");
}

TEST_CASE("the form of a published template is found", "[chat]") {
  SLM_SKIP_WITHOUT(testing::published_template("SOURCE.txt"), "the folder chat_templates");
  for (const OrderedJson& example : testing::template_cases("features.json")) {
    const std::string file = example["template"];
    CAPTURE(file);
    const ChatTemplate form = ChatTemplate::parse(testing::file_text(testing::published_template(file)),
                                                  {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const AnswerFormat format = AnswerFormat::of(form);
    if (file == "smollm3.jinja") {  // this copy has no tools
      CHECK(format.name() == "plain");
    } else if (example["tool_format"].is_string()) {
      CHECK(std::string(format.name()) == form_of(example["tool_format"]));
    } else if (file == "apertus.jinja") {
      CHECK(format.name() == "apertus");
    } else if (file == "apriel-1.6.jinja") {
      CHECK(format.name() == "apriel");
    } else {
      CHECK(format.name() == "plain");
    }
    const std::string_view call = form.features().call_text;
    if (call.empty()) continue;
    const ParsedAnswer answer = parse_answer(call, format, {.tools = R"([{"function": {"name": "fq7z"}}])"});
    if (format.name() != "llama3" && format.name() != "gpt-oss") {  // behind a header they are no calls
      REQUIRE(answer.calls.size() == 1);
      CHECK(answer.calls[0].name == "fq7z");
      CHECK(Json::parse(answer.calls[0].arguments) == Json{{"kq7z", "vq7z"}});
    }
    jinja::Rendered prompt = form.render(R"([{"role": "user", "content": "x"}])");
    CHECK(format.begins_in_reasoning(prompt) == (form.features().opens_thinking || format.name() == "apriel"));
  }
}

TEST_CASE("gpt-oss: the first bytes decide whether a message has a header, whole and in pieces") {
  const AnswerFormat format = AnswerFormat::named("gpt-oss");
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"text f<|message|>more", "text f<|message|>more"},
      {"<|channel|>final<|message|>one<|start|>assistant<|channel|>final<|message|>two", "one\ntwo"}};
  for (const auto& [text, content] : cases) {
    CHECK(parse_answer(text, format).content == content);
    AnswerParser parser(format);
    ParsedAnswer joined;
    for (const char byte : text) {
      for (AnswerPart& part : parser.push({&byte, 1})) joined.add(std::move(part));
    }
    for (AnswerPart& part : parser.finish()) joined.add(std::move(part));
    CHECK(joined.content == content);
  }
}
