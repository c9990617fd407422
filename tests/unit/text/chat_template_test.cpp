// Where a model's chat template comes from, and templates that slm has for models that ship none.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/chat.hpp"
#include "support/errors.hpp"
#include "support/gguf_builder.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using testing::error_id;
using testing::GgufBuilder;

namespace {

const std::vector<ChatMessage> question{{"user", "Hi"}};
const std::string a_tool = R"([{"type": "function", "function": {"name": "f"}}])";

/// A template that says which one it is.
std::string saying(const std::string& word) { return word + "{% for m in messages %}{{ m.content }}{% endfor %}"; }

std::string rendered(const ChatTemplate& form, std::string_view tools = {}) {
  ChatOptions options;
  options.tools = tools;
  options.as_given = true;
  return form.render(question, options).text;
}

std::string rendered(const std::filesystem::path& model, const std::string& choice = {}, std::string_view tools = {}) {
  return rendered(ChatTemplate::from(model, choice), tools);
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

TEST_CASE("the sources of a folder's chat template have an order", "[chat]") {
  const testing::TemporaryFolder scratch;
  const auto folder = scratch.path() / "mine";
  const auto fails = [&](const std::string& choice = {}) { return error_id([&] { rendered(folder, choice); }); };
  write(folder / "config.json", R"({"model_type": "llama"})");
  CHECK(fails() == "chat.unrecognised");
  write(folder / "tokenizer_config.json", Json{{"chat_template", saying("config ")}, {"bos_token", "<s>"}}.dump());
  CHECK(rendered(folder) == "config Hi");
  write(folder / "chat_template.json", Json{{"chat_template", saying("json ")}}.dump());
  CHECK(rendered(folder) == "json Hi");
  write(folder / "chat_template.jinja", "\xEF\xBB\xBF" + saying("jinja {{ bos_token }} ") + "\r\n");
  CHECK(rendered(folder) == "jinja <s> Hi");
  write(folder / "additional_chat_templates" / "tool_use.jinja", saying("tools "));
  write(folder / "additional_chat_templates" / "rag.jinja", saying("rag "));
  CHECK(rendered(folder) == "jinja <s> Hi");
  CHECK(rendered(folder, {}, a_tool) == "tools Hi");
  CHECK(rendered(folder, "rag", a_tool) == "rag Hi");
  CHECK(ChatTemplate::from(folder).source(true) == saying("tools "));
  const auto file = scratch.path() / "own.jinja";
  write(file, saying("own "));
  CHECK(rendered(folder, file.string(), a_tool) == "own Hi");
  CHECK(rendered(folder, "plain") == "Hi\n");
  CHECK(fails("lama") == "chat.unknown-template");
  write(file, "{{ nope");
  CHECK(fails(file.string()) == "chat.template-syntax");
  write(folder / "additional_chat_templates" / "tool_use.jinja", "{% broken %}");
  CHECK(rendered(folder) == "jinja <s> Hi");
  CHECK(error_id([&] { rendered(folder, {}, a_tool); }) == "chat.template-syntax");
}

TEST_CASE("a list of named templates", "[chat]") {
  const testing::TemporaryFolder scratch;
  const auto folder = scratch.path() / "mine";
  const auto named = [](const std::string& name) { return Json{{"name", name}, {"template", saying(name + " ")}}; };
  write(folder / "tokenizer_config.json",
        Json{{"chat_template", Json::array({named("tool_use"), named("default"), named("rag")})}}.dump());
  CHECK(rendered(folder) == "default Hi");
  CHECK(rendered(folder, {}, a_tool) == "tool_use Hi");
  CHECK(rendered(folder, "rag") == "rag Hi");
  write(folder / "tokenizer_config.json", Json{{"chat_template", Json::array({named("a"), named("b")})}}.dump());
  CHECK(error_id([&] { rendered(folder); }) == "chat.no-default");
  CHECK(rendered(folder, "b") == "b Hi");
  for (const char* broken : {R"({"chat_template": 7})", R"({"chat_template": [7]})"}) {
    write(folder / "tokenizer_config.json", broken);
    CHECK(error_id([&] { rendered(folder); }) == "json.bad-field");
  }
}

TEST_CASE("a GGUF file's chat templates", "[chat]") {
  const testing::TemporaryFolder scratch;
  const auto file = [&](const GgufBuilder& builder) { return scratch.write("m.gguf", builder.build()); };
  const auto alone = GgufBuilder()
                         .string("tokenizer.chat_template", saying("gguf {{ bos_token }}{{ eos_token }} "))
                         .strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<s>", "</s>"})
                         .u32("tokenizer.ggml.bos_token_id", 1)
                         .u32("tokenizer.ggml.eos_token_id", 2);
  CHECK(rendered(file(alone)) == "gguf <s></s> Hi");
  const auto several = GgufBuilder()
                           .string("tokenizer.chat_template", saying("gguf "))
                           .strings("tokenizer.chat_templates", std::vector<std::string>{"tool_use", "a-b"})
                           .string("tokenizer.chat_template.tool_use", saying("tools "))
                           .string("tokenizer.chat_template.a_b", saying("ab "));
  CHECK(rendered(file(several)) == "gguf Hi");
  CHECK(rendered(file(several), {}, a_tool) == "tools Hi");
  CHECK(rendered(file(several), "a-b") == "ab Hi");
  CHECK(error_id([&] { rendered(file(GgufBuilder())); }) == "chat.unrecognised");
  const auto guessed = ChatTemplate::from(file(GgufBuilder().string("general.name", "Mistral 7B Instruct v0.2")));
  CHECK(guessed.name() == "mistral-v0.2");
  CHECK(guessed.is_guessed());
}

TEST_CASE("a model without template is written as its name suggests", "[chat]") {
  const testing::TemporaryFolder scratch;
  const auto name_of = [&](const std::string& name, const std::string& model_type, const std::string& path = "") {
    const auto folder = scratch.path() / "above" / name;
    write(folder / "config.json", Json{{"model_type", model_type}, {"_name_or_path", path}}.dump());
    try {
      const ChatTemplate form = ChatTemplate::from(folder);
      CHECK(form.is_guessed());
      return form.name();
    } catch (const Error& error) {
      return error.id();
    }
  };
  CHECK(name_of("AMD-OLMo-1B-SFT", "olmo") == "amd-olmo");
  CHECK(name_of("Llama-2-7b-chat-hf", "llama") == "llama-2");
  CHECK(name_of("Meta-Llama-3-8B-Instruct", "llama") == "llama-3");
  CHECK(name_of("Llama-3.2-1B-Instruct", "llama") == "llama-3.2");
  CHECK(name_of("Llama-3.3-70B-Instruct", "llama") == "llama-3.1");
  CHECK(name_of("Mistral-7B-Instruct-v0.3", "mistral") == "mistral-v0.3");
  CHECK(name_of("Phi-3-mini-4k-instruct", "phi3") == "phi-3");
  CHECK(name_of("Qwen2.5-0.5B-Instruct", "qwen2") == "qwen-2.5");
  CHECK(name_of("Qwen3-0.6B", "qwen3") == "qwen-3");
  CHECK(name_of("mine", "llama", "a/TinyLlama-Chat") == "zephyr");
  for (const char* other : {"AMD-OLMo-1B", "Llama-2-7b-hf", "Qwen3-0.6B-Base", "Qwen3-4B-Instruct-2507", "mine"}) {
    CHECK(name_of(other, "llama") == "chat.unrecognised");
  }
  CHECK(name_of("tinyllama-chat-experiments/mine", "llama", "llama-2-chat/base") == "chat.unrecognised");
}

TEST_CASE("slm's own templates write what the published ones write", "[chat]") {
  const Json cases = Json::parse(std::ifstream(testing::fixture("chat/expected.json")));
  REQUIRE(cases.size() > 150);
  for (const Json& item : cases) {
    const ChatTemplate form = ChatTemplate::from({}, item["template"].get<std::string>());
    std::vector<ChatMessage> messages;
    for (const Json& message : item["messages"]) messages.push_back({message["role"], message["content"]});
    Json variables = Json::object();
    if (item.contains("thinking")) variables["enable_thinking"] = item["thinking"];
    if (item.contains("date") || item["template"] == "llama-3.2") {
      variables["date_string"] = item.value("date", "26 Jul 2024");
    }
    const std::string kwargs = variables.dump();
    ChatOptions options;
    options.kwargs = kwargs;
    INFO(item.dump());
    const bool drops = item["template"] == "llama-2" && messages.size() == 3 && messages[1].role == "system";
    if (item.value("refused", false) || drops) {  // the published template drops that message without a word
      CHECK(error_id([&] { form.render(messages, options); }) == "chat.template-raised");
    } else {
      CHECK(form.render(messages, options).text == item["prompt"].get<std::string>());
    }
  }
}
