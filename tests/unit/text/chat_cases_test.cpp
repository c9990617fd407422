// Chat templates beside transformers: published templates where they are present, what they write and what they can,
// and ids of chats whose messages spell control tokens.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/chat.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"
#include "support/paths.hpp"
#include "support/templates.hpp"

using namespace slm;
using testing::OrderedJson;
using testing::template_cases;

namespace {

/// The texts that a case's options refer to.
struct Given {
  explicit Given(const OrderedJson& example)
      : messages(example["messages"].dump()),
        tools(example.contains("tools") ? example["tools"].dump() : ""),
        kwargs(example.contains("kwargs") ? example["kwargs"].dump() : "") {
    options.tools = tools;
    options.kwargs = kwargs;
    options.add_generation_prompt = example.value("add_generation_prompt", true);
    options.continue_final_message = example.value("continue_final_message", false);
    options.as_given = true;
    options.date = jinja::Date::parse(example.value("date", "2025-03-09T14:05:07"));
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  std::string messages, tools, kwargs;
  ChatOptions options;
};

const ChatTemplate& published(const std::string& file) {
  static std::map<std::string, ChatTemplate> compiled;
  const auto found = compiled.find(file);
  if (found != compiled.end()) return found->second;
  const std::string source = testing::file_text(testing::published_template(file));
  return compiled.emplace(file, ChatTemplate::parse(source)).first->second;
}

ChatTemplate with_tokens(const OrderedJson& example) {
  return published(example["template"])
      .with_token("bos_token", example["bos_token"])
      .with_token("eos_token", example["eos_token"]);
}

}  // namespace

TEST_CASE("published templates give what transformers gives", "[chat]") {
  SLM_SKIP_WITHOUT(testing::published_template("SOURCE.txt"), "the folder chat_templates");
  for (const OrderedJson& example : template_cases("templates.json")) {
    const std::string name = example["name"];
    CAPTURE(name);
    const ChatTemplate form = with_tokens(example);
    const Given given(example);
    try {
      const jinja::Rendered found = form.render(given.messages, given.options);
      REQUIRE_FALSE(example.contains("error"));
      CHECK(found.text == example["expected"].get<std::string>());
    } catch (const TemplateError& error) {
      INFO(error.what());
      REQUIRE(example.contains("error"));
      const int line = example["error_line"];
      CHECK((error.line() == line || error.line() == line - 1));  // an expression may span two
      if (example["error_kind"] != "raised") continue;
      CHECK(error.kind() == TemplateError::Kind::raised);
      CHECK(error.line() == line);
      CHECK_THAT(error.reason(), Catch::Matchers::StartsWith(example["error_text"].get<std::string>()));
    }
  }
}

TEST_CASE("texts of messages differ from texts of templates", "[chat]") {
  SLM_SKIP_WITHOUT(testing::published_template("SOURCE.txt"), "the folder chat_templates");
  for (const OrderedJson& example : template_cases("marks.json")) {
    const std::string name = example["name"];
    CAPTURE(name);
    const Given given(example);
    const jinja::Rendered found = with_tokens(example).render(given.messages, given.options);
    REQUIRE(found.text == example["expected"].get<std::string>());
    std::vector<std::size_t> places;  // of characters, in bytes
    for (std::size_t at = 0; at < found.text.size();) {
      places.push_back(at);
      utf8::next(found.text, at);
    }
    places.push_back(found.text.size());
    const auto written = [&](std::size_t begin, std::size_t end) {
      std::size_t from = 0;
      bool all = true;
      for (const auto& span : found.spans) {
        if (from < end && begin < span.end) all = all && span.written;
        from = span.end;
      }
      return all;
    };
    for (const char* owner : {"user", "template_owned"}) {
      for (const OrderedJson& span : example[owner]) {
        CAPTURE(span.dump());
        CHECK(written(places[span[0]], places[span[1]]) == (std::string_view(owner) == "template_owned"));
      }
    }
  }
}

TEST_CASE("long conversations stay within the limits of published templates", "[chat]") {
  SLM_SKIP_WITHOUT(testing::published_template("SOURCE.txt"), "the folder chat_templates");
  std::string tools, texts, calls;
  const std::string words(1000, 'w');
  for (int i = 0; i < 100; ++i) {
    tools += slm::text(i > 0 ? "," : "", R"({"type": "function", "function": {"name": "f)", i, R"(", "description": ")",
                       words.substr(500),
                       R"(", "parameters": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string",
                       "description": "b", "enum": ["x", "y"]}, "c": {"type": "integer", "description": "d"}}}}})");
  }
  for (int i = 0; i < 1001; ++i) {
    const auto said = [&](const char* role) {
      return slm::text(i > 0 ? "," : "", R"({"role": ")", role, R"(", "content": ")", i, " ", words, "\"}");
    };
    texts += said(i % 2 == 0 ? "user" : "assistant");
    if (i % 4 == 1) {
      calls += R"(,{"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function",
                  "function": {"name": "f1", "arguments": {"a": "x", "c": 2}}}]})";
    } else if (i % 4 == 2) {
      calls += slm::text(R"(,{"role": "tool", "tool_call_id": "abcdefgh1", "name": "f1", "content": ")", i, "\"}");
    } else {
      calls += said(i % 4 == 0 ? "user" : "assistant");
    }
  }
  std::size_t rendered = 0;
  for (const OrderedJson& example : template_cases("features.json")) {
    const std::string name = example["template"];
    const ChatTemplate form = published(name).with_token("bos_token", "<s>").with_token("eos_token", "</s>");
    for (const std::string& messages : {texts, calls}) {
      const std::string all_tools = "[" + tools + "]", all = "[" + messages + "]";
      ChatOptions options;
      options.tools = all_tools;
      options.as_given = true;  // also where the template leaves tools out
      INFO(name);
      try {
        const std::size_t size = form.render(all, options).text.size();
        CHECK(size > 100'000);
        ++rendered;
      } catch (const TemplateError& error) {
        INFO(error.what());
        CHECK(error.kind() != TemplateError::Kind::limit);  // some refuse the role of a tool
      }
    }
  }
  CHECK(rendered > 50);
}

TEST_CASE("what a template can do is found by rendering", "[chat]") {
  SLM_SKIP_WITHOUT(testing::published_template("SOURCE.txt"), "the folder chat_templates");
  for (const OrderedJson& example : template_cases("features.json")) {
    const std::string name = example["template"];
    const ChatTemplate form = published(name).with_token("bos_token", "<s>").with_token("eos_token", "</s>");
    const ChatFeatures& found = form.features();
    const auto check = [&](const char* field, ChatSupport support) {
      constexpr const char* words[]{"no", "yes", "error"};
      INFO(name << " " << field);
      const std::string expected = example[field];
      CHECK(words[static_cast<int>(support)] == (expected == "quoted-twice" ? "yes" : expected));
    };
    check("system_role", found.system);
    check("system_later", found.later_system);
    check("developer_role", found.developer);
    check("parts_content", found.parts);
    check("tools", found.tools);
    check("tool_call_in_history", found.tool_calls);
    check("arguments_as_object", found.arguments_as_object);
    check("arguments_as_text", found.arguments_as_text);
    check("two_calls_in_one_message", found.parallel_calls);
    check("text_beside_call", found.text_beside_call);
    check("call_without_content_key", found.call_without_content);
    check("tool_result", found.tool_results);
    check("documents", found.documents);
    check("reasoning_of_earlier_turns", found.earlier_reasoning);
    check("reasoning_after_last_user", found.last_reasoning);
    INFO(name);
    CHECK(found.quotes_arguments == (example["arguments_as_text"] == "quoted-twice"));
    CHECK(found.generation_prompt == example["generation_prompt"]["default"].get<std::string>());
    CHECK(found.opens_thinking == example["generation_prompt_opens_thinking"]["default"].get<bool>());
    const auto& effects = example["variables_with_effect"];
    CHECK(found.thinking_switch == (std::find(effects.begin(), effects.end(), "enable_thinking") != effects.end()));
    if (example["call_text"].is_string()) CHECK(found.call_text == example["call_text"].get<std::string>());
  }
}

TEST_CASE("a template that exceeds its limits is probed once", "[chat]") {
  const ChatTemplate form = ChatTemplate::parse(
      "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}{{ messages[0].content }}");
  const std::clock_t begin = std::clock();
  CHECK(form.features().system == ChatSupport::error);
  CHECK(form.features().tools == ChatSupport::error);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__)
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 0.3);
#else
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 5);
#endif
}

TEST_CASE("ids of chats are those of text that cannot become control tokens", "[chat]") {
  for (const OrderedJson& example : template_cases("ids/ids.json")) {
    const std::string name = example["name"];
    CAPTURE(name);
    const auto folder = testing::fixture("templates/ids/" + example["tokenizer"].get<std::string>());
    const Tokenizer tokenizer = Tokenizer::from(folder);
    const Given given(example);
    const ChatTemplate form = ChatTemplate::from(folder);
    const jinja::Rendered rendered = form.render(given.messages, given.options);
    CHECK(rendered.text == example["text"].get<std::string>());
    const std::vector<Token> ids = form.encode(tokenizer, rendered);
    CHECK(ids == example["ids"].get<std::vector<Token>>());
    CHECK(tokenizer.decode(ids, false) == rendered.text);
  }
}

TEST_CASE("each control token of the families' tokenizers is a message's text and comes back", "[chat]") {
  for (const char* family : {"chatml", "deepseek", "gemma", "harmony", "llama3", "mistral"}) {
    const auto folder = testing::fixture(std::string("templates/ids/") + family);
    const Tokenizer tokenizer = Tokenizer::from(folder);
    const ChatTemplate form = ChatTemplate::from(folder);
    const auto ids_of = [&](const std::string& said, std::string* text = nullptr) {
      const jinja::Rendered rendered = form.render(std::vector<ChatMessage>{{"user", said}});
      if (text != nullptr) *text = rendered.text;
      return form.encode(tokenizer, rendered);
    };
    const auto control = [&](const std::vector<Token>& ids) {
      return std::count_if(ids.begin(), ids.end(), [&](Token id) { return tokenizer.is_control(id); });
    };
    const auto own = control(ids_of("x"));
    int tried = 0;
    for (Token id = 0; id < tokenizer.vocab(); ++id) {
      if (!tokenizer.is_control(id)) continue;
      const std::string said = "a" + tokenizer.piece(id) + "b";
      INFO(family << ' ' << said);
      std::string text;
      const std::vector<Token> ids = ids_of(said, &text);
      CHECK(text.find(said) != std::string::npos);
      CHECK(control(ids) == own);
      CHECK(tokenizer.decode(ids, false) == text);
      ++tried;
    }
    CHECK(tried > 3);
  }
}
