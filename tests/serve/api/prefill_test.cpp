// A server that continues the assistant's last message, tools for templates that show none, and llama.cpp's list of
// models.
#include <catch2/catch.hpp>
#include <string>

#include "serve/api/calling_server.hpp"

using serve::test::CallingServer;
using serve::test::FakeServer;
using slm::Json;

namespace {

std::string chat(const std::string& last, const std::string& more = "") {
  return R"("messages": [{"role": "user", "content": "u"}, )" + last + "]" + more;
}

const std::string answer_text = R"({"role": "assistant", "content": "He"})";

/// A server whose template is this one.
CallingServer server_of(const slm::ChatTemplate& form, bool prefills = false) {
  CallingServer server;
  server.model.chat = cli::make_chat_format(form, {}, server.model.tokenizer);
  server.model.prefills = prefills;
  auto fake = std::make_unique<serve::test::FakeService>();
  server.service = fake.get();
  server.api = std::make_unique<serve::Api>(serve::LoadedModel{server.model, std::move(fake)}, serve::ApiOptions{});
  return server;
}

slm::ChatTemplate turns(bool with_parts = false) {
  const std::string content =
      with_parts ? "{{ m.content if m.content is string else m.content[0].text }}" : "{{ m.content + '' }}";
  return slm::ChatTemplate::parse("{% for m in messages %}<{{ m.role }}>" + content +
                                  "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
}

}  // namespace

TEST_CASE("a server that prefills continues the assistant's last message, others answer it") {
  CallingServer plain = server_of(turns()), prefilling = server_of(turns(), true);
  CHECK(plain.prompt(chat(answer_text)) == "<user>u<assistant>He<assistant>");
  CHECK(prefilling.prompt(chat(answer_text)) == "<user>u<assistant>He");
  CHECK(prefilling.prompt(chat(R"({"role": "user", "content": "v"})")) == "<user>u<user>v<assistant>");
  const std::string parts =
      R"({"role": "assistant", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "e"}]})";
  CHECK(plain.prompt(chat(parts)) == "<user>u<assistant>H\ne<assistant>");
  CHECK(prefilling.prompt(chat(parts)) == "<user>u<assistant>H\n\ne");
  CallingServer with_parts = server_of(turns(true), true);
  CHECK(with_parts.prompt(chat(parts)) == "<user>u<assistant>H\n\ne");
}

TEST_CASE("what a request says of its last message comes before the server's way") {
  CallingServer server = server_of(turns(), true);
  CHECK(server.prompt(chat(answer_text, R"(, "add_generation_prompt": true)")) == "<user>u<assistant>He<assistant>");
  CHECK(server.prompt(chat(answer_text, R"(, "add_generation_prompt": false)")) == "<user>u<assistant>He");
  CHECK(server.prompt(chat(answer_text, R"(, "continue_final_message": false)")) == "<user>u<assistant>He<assistant>");
  const std::string call =
      R"({"role": "assistant", "content": "c", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]})";
  CHECK(server.prompt(chat(call)) == "<user>u<assistant>c<assistant>");
  CHECK(server.prompt(chat(R"({"role": "assistant"})")) == "<user>u<assistant><assistant>");
}

TEST_CASE("two messages of the assistant at the end are no text to continue") {
  CallingServer prefilling = server_of(turns(), true), plain = server_of(turns());
  const std::string two = "{" + chat(answer_text + ", " + answer_text) + "}";
  CHECK(prefilling.refused(two) == "messages");
  CHECK(plain.refused(two) == "nothing");
}

TEST_CASE("tools that a template does not show are texts of messages, and calls are read and constrained") {
  const std::string tools = ", " + serve::test::two_tools();
  CHECK(server_of(turns()).refused("{" + chat(answer_text, tools) + "}") == "tools");
  CallingServer server = server_of(turns().with_tools());
  const std::string prompt = server.prompt(chat(R"({"role": "user", "content": "v"})", tools));
  CHECK(prompt.starts_with("<system>"));
  CHECK(prompt.find("get_weather") < prompt.find("<user>u<user>v<assistant>"));
  CHECK(server.prompt(chat(answer_text)) == "<user>u<assistant>He<assistant>");
  const Json message = server.message(serve::test::two_tools(), serve::test::call_text("now", "{}"));
  CHECK(message["tool_calls"][0]["function"]["name"] == "now");
  server.service->asked.clear();
  const auto exchange = server.begin(serve::test::two_tools(R"(, "tool_choice": "required")"));
  CHECK(server.service->asked.at(0).request.constraint != nullptr);
}

TEST_CASE("llama.cpp's list of models has one entry with all names and the operator's tags") {
  FakeServer server({.tags = {"chat", "small"}});
  const Json one = server.ask("/models", "", "GET").json()["data"];
  REQUIRE(one.size() == 1);
  CHECK(one[0]["id"] == "demo");
  CHECK(one[0]["aliases"] == Json{"demo", "alias"});
  CHECK(one[0]["tags"] == Json{"chat", "small"});
  const Json both = server.ask("/v1/models", "", "GET").json()["data"];
  CHECK(both.size() == 2);
  CHECK_FALSE(both[0].contains("aliases"));
}
