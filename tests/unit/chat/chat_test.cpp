// Chat: prompts, calls and their results, limits, and errors, with a decoder that says what a script contains.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "slm/chat.hpp"
#include "slm/io/json.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"

using namespace slm;

namespace {

constexpr const char* calling_template =
    R"({% if tools %}<tools>{{ tools|tojson }}</tools>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for call in m.tool_calls or [] %}{{ '\n' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments|tojson }}}
</tool_call>{% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% if enable_thinking %}<think>
{% endif %}{% endif %})";

constexpr const char* move_schema = R"({"type": "object", "properties": {"to": {"enum": ["north", "south"]}},
  "required": ["to"], "additionalProperties": false})";

std::string call_text(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

/// A chat whose model says the texts of a script, one for each request.
struct ScriptedChat {
  explicit ScriptedChat(std::deque<std::string> texts, const char* form = calling_template)
      : script(std::move(texts)),
        chat(
            [this](const Request& request, const std::function<bool(Token)>& sink) {
              requests.push_back(request);
              if (script.empty()) throw Error("test.over", "the script has ended", "Write more");
              Stats stats;
              stats.finish_reason = FinishReason::end_token;
              if (script.front().starts_with('~')) {  // cut
                script.front().erase(0, 1);
                stats.finish_reason = FinishReason::length;
              }
              for (const Token token : tokenizer.encode(script.front(), false)) {
                if (!sink(token)) break;
              }
              script.pop_front();
              return stats;
            },
            tokenizer.vocab(), tokenizer, ChatTemplate::parse(form)) {}

  std::string prompt(std::size_t request) const { return tokenizer.decode(requests.at(request).prompt, false); }

  /// Whether the answer to a request may be the text.
  bool accepts(std::size_t request, const std::string& text) const {
    const auto state = requests.at(request).constraint->begin();
    for (const Token token : tokenizer.encode(text, false)) {
      if (!state->advance(token)) return false;
    }
    return state->may_end();
  }

  void add_move() {
    chat.settings().tools.push_back({"move", "Moves a piece.", move_schema, [this](std::string_view arguments) {
                                       moves.emplace_back(arguments);
                                       return "moved \"<b>\"";
                                     }});
  }

  const Tokenizer tokenizer = Tokenizer::from(slm::testing::source_path("examples/demo_pair/target"));
  std::deque<std::string> script;
  std::vector<Request> requests;
  std::vector<std::string> moves;
  Chat chat;
};

}  // namespace

TEST_CASE("a chat keeps its turns") {
  ScriptedChat scripted({"One.", "Two."});
  scripted.chat.add({.role = "system", .content = "Be brief."});
  const ChatAnswer answer = scripted.chat.ask("First?");
  CHECK(answer.content == "One.");
  CHECK(answer.is_complete);
  CHECK(answer.calls.empty());
  CHECK(scripted.prompt(0) == "system: Be brief.\nuser: First?\nassistant: ");
  CHECK(scripted.requests[0].constraint == nullptr);
  CHECK(scripted.chat.ask("Second?").content == "Two.");
  CHECK(scripted.prompt(1) == "system: Be brief.\nuser: First?\nassistant: One.\nuser: Second?\nassistant: ");
  CHECK(scripted.chat.turns().size() == 5);
  scripted.chat.clear();
  CHECK(scripted.chat.turns().empty());
}

TEST_CASE("calls are run, and their results given to the model, until it answers") {
  ScriptedChat scripted({"Moving." + call_text("move", R"({"to": "north"})") + call_text("move", R"({"to": "south"})"),
                         call_text("fly", "{}"), "Done."});
  scripted.add_move();
  std::string streamed;
  scripted.chat.settings().on_part = [&](const AnswerPart& part) {
    streamed += part.kind == AnswerPart::Kind::call ? "[" + part.call.name + "]" : part.text;
  };
  const ChatAnswer answer = scripted.chat.ask("Go");
  CHECK(answer.content == "Done.");
  CHECK(answer.is_complete);
  CHECK(streamed == "Moving.[move][move][fly]Done.");
  CHECK(scripted.moves == std::vector<std::string>{R"({"to": "north"})", R"({"to": "south"})"});
  REQUIRE(answer.calls.size() == 3);
  CHECK(answer.calls[2].name == "fly");
  const std::string tools = scripted.prompt(0).substr(0, scripted.prompt(0).find("</tools>"));
  const Json offered = Json::parse(tools.substr(tools.find('[')));
  CHECK(offered[0]["function"]["parameters"] == Json::parse(move_schema));
  CHECK(scripted.prompt(1).ends_with("tool: moved \"<b>\"\ntool: moved \"<b>\"\nassistant: "));
  CHECK(scripted.prompt(2).ends_with("tool: There is no tool 'fly'.\nassistant: "));
  std::vector<std::string> ids;
  for (const ChatTurn& turn : scripted.chat.turns()) {
    for (const ToolCall& call : turn.calls) ids.push_back(call.id);
    if (turn.role == "tool") CHECK(std::find(ids.begin(), ids.end(), turn.call_id) != ids.end());
  }
  CHECK(ids == std::vector<std::string>{"c00000001", "c00000002", "c00000003"});
}

TEST_CASE("a required call is constrained, and only the first answer must be one") {
  const std::string north = call_text("move", R"({"to": "north"})");
  ScriptedChat scripted({north, "Done.", north, "Done."});
  scripted.add_move();
  scripted.chat.settings().tools.push_back({"stop", "", "", [](std::string_view) { return "stopped"; }});
  scripted.chat.settings().tool_choice = ToolChoice::required;
  CHECK(scripted.chat.ask("Go").content == "Done.");
  CHECK(scripted.accepts(0, north));
  CHECK(scripted.accepts(0, call_text("stop", "{}")));
  CHECK_FALSE(scripted.accepts(0, call_text("move", R"({"to": "up"})")));
  CHECK_FALSE(scripted.accepts(0, "Done."));
  CHECK(scripted.requests[1].constraint == nullptr);
  scripted.chat.settings().required_tool = "move";
  scripted.chat.ask("Go");
  CHECK(scripted.accepts(2, north));
  CHECK_FALSE(scripted.accepts(2, call_text("stop", "{}")));
}

TEST_CASE("a grammar holds for the content, beside calls and behind reasoning") {
  ScriptedChat scripted({"yes", "yes", "because</think>\n\nyes"});
  scripted.chat.settings().grammar = Grammar::regex("yes|no");
  scripted.chat.ask("1");
  CHECK(scripted.accepts(0, "no"));
  CHECK_FALSE(scripted.accepts(0, "maybe"));
  scripted.add_move();
  scripted.chat.ask("2");
  CHECK(scripted.accepts(1, call_text("move", R"({"to": "north"})")));
  CHECK_FALSE(scripted.accepts(1, "maybe"));
  scripted.chat.settings().kwargs = R"({"enable_thinking": true})";
  const ChatAnswer answer = scripted.chat.ask("3");
  CHECK(answer.reasoning == "because");
  CHECK(answer.content == "yes");
  CHECK(scripted.accepts(2, "so\n</think>\n\nno"));
  CHECK_FALSE(scripted.accepts(2, "no"));
}

TEST_CASE("a chat without a choice of tools shows none and reads no calls") {
  const std::string call = call_text("move", "{}");
  ScriptedChat scripted({call});
  scripted.add_move();
  scripted.chat.settings().tool_choice = ToolChoice::none;
  CHECK(scripted.chat.ask("Go").content == call);
  CHECK(scripted.moves.empty());
  CHECK(scripted.prompt(0).find("<tools>") == std::string::npos);
}

TEST_CASE("limits end a question") {
  const std::string call = call_text("move", "{}");
  ScriptedChat scripted({call, call, "~Cut off"});
  scripted.add_move();
  scripted.chat.settings().most_answers = 2;
  const ChatAnswer calling = scripted.chat.ask("Go");
  CHECK_FALSE(calling.is_complete);
  CHECK(calling.calls.size() == 2);
  CHECK(scripted.chat.turns().back().role == "tool");
  const ChatAnswer cut = scripted.chat.ask("And?");
  CHECK(cut.content == "Cut off");
  CHECK_FALSE(cut.is_complete);
}

TEST_CASE("after an error the conversation is as before the question") {
  const std::string call = call_text("move", "{}");
  ScriptedChat scripted({call, "One."});
  scripted.chat.settings().tools = {
      {"move", "", "", [](std::string_view) -> std::string { throw std::runtime_error("x"); }}};
  CHECK_THROWS_AS(scripted.chat.ask("Go"), std::runtime_error);
  CHECK(scripted.chat.turns().empty());
  scripted.chat.settings().tools.clear();
  CHECK(scripted.chat.ask("Go").content == "One.");
  CHECK(slm::testing::error_id([&] { scripted.chat.ask("More"); }) == "test.over");
  CHECK(scripted.chat.turns().size() == 2);
}

TEST_CASE("wrong tools and templates without tools are refused") {
  ScriptedChat scripted({});
  const auto run = [](std::string_view) { return std::string{}; };
  const auto id = [&] { return slm::testing::error_id([&] { scripted.chat.ask("x"); }); };
  auto& settings = scripted.chat.settings();
  for (const ChatTool& tool :
       {ChatTool{"", "", "", run}, ChatTool{"a b", "", "", run}, ChatTool{std::string(65, 'a'), "", "", run},
        ChatTool{"a", "", "", {}}, ChatTool{"a", "", "[]", run}}) {
    settings.tools = {tool};
    CHECK(id() == "chat.bad-tool");
  }
  settings.tools = {{"a", "", "{", run}};
  CHECK(id() == "json.malformed");
  settings.tools = {{"a", "", "", run}, {"a", "", "", run}};
  CHECK(id() == "chat.bad-tool");
  settings.tools = {{"a", "", R"({"type": 5})", run}};
  settings.tool_choice = ToolChoice::required;
  CHECK(id() == "grammar.schema");
  settings.tools = {{"a", "", "", run}};
  settings.required_tool = "b";
  CHECK(id() == "chat.bad-tool");
  settings.required_tool.clear();
  settings.most_answers = 0;
  CHECK(id() == "chat.bad-options");
  settings.most_answers = 1;
  settings.tools.clear();
  CHECK(id() == "chat.bad-tool");
  CHECK(scripted.chat.turns().empty());

  ScriptedChat plain({}, "{% for m in messages %}{{ m.content }}{% endfor %}");
  plain.add_move();
  CHECK(slm::testing::error_id([&] { plain.chat.ask("x"); }) == "chat.no-tools");
  ScriptedChat xml({},
                   R"({{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>)"
                   R"(<function={{ c.function.name }}>{% endfor %}{% endfor %})");
  xml.add_move();
  xml.chat.settings().tool_choice = ToolChoice::required;
  CHECK(slm::testing::error_id([&] { xml.chat.ask("x"); }) == "chat.no-json-calls");
}

TEST_CASE("a chat on a model makes the calls that it must") {
  const std::string folder = slm::testing::source_path("examples/demo_pair/target").string();
  SpeculativeDecoder decoder{Drafter{ForcedText{}, Lookup{}}, load(folder, backend::Cpu(1))};
  Chat chat{decoder, Tokenizer::from(folder), ChatTemplate::parse(calling_template)};
  std::vector<std::string> moves;
  chat.settings().tools = {{"move", "", move_schema, [&](std::string_view arguments) {
                              moves.emplace_back(arguments);
                              return "moved";
                            }}};
  chat.settings().tool_choice = ToolChoice::required;
  chat.settings().sampling = {.max_new_tokens = 60, .temperature = 1, .seed = 3};
  const ChatAnswer answer = chat.ask("Go north");
  REQUIRE(!moves.empty());
  const Json arguments = Json::parse(moves[0]);
  CHECK((arguments["to"] == "north" || arguments["to"] == "south"));
  CHECK(chat.turns()[2].content == "moved");
  CHECK(answer.stats.reused_tokens > 0);
}
