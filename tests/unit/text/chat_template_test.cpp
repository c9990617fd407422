// Which chat template a folder or a GGUF file asks for: a published one by its whole source, or a guess by the model's
// name. Any other source is refused, however similar.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/sha256.hpp"
#include "slm/text/chat.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/temporary.hpp"

namespace chat = slm::chat;
using chat::Template;
using slm::Json;
using slm::testing::error_id;

namespace {

/// ChatML, as many models publish it, behind another text, or with another content.
std::string chatml(const std::string& before = "", const std::string& content = "message['content']") {
  return before + "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + " + content +
         " + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif "
         "%}";
}

/// Zephyr's and TinyLlama-Chat's, with these line ends.
std::string zephyr(const std::string& line) {
  std::string source;
  const auto add = [&](const std::string& text) { source += text + line; };
  add("{% for message in messages %}");
  for (const std::string role : {"user", "system", "assistant"}) {
    add((role == "user" ? "{% if" : "{% elif") + (" message['role'] == '" + role) + "' %}");
    add("{{ '<|" + role + "|>");
    add((role == "assistant" ? "'  + " : "' + ") + std::string{"message['content'] + eos_token }}"});
  }
  for (const char* text : {"{% endif %}", "{% if loop.last and add_generation_prompt %}", "{{ '<|assistant|>' }}"}) {
    add(text);
  }
  add("{% endif %}");
  return source + "{% endfor %}";
}

const std::string llama3 =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 "
    "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{{ "
    "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}";

std::string replaced(std::string text, std::string_view part, std::string_view by) {
  const std::size_t at = text.find(part);
  REQUIRE(at != text.npos);
  return text.replace(at, part.size(), by);
}

}  // namespace

TEST_CASE("a GGUF file says its chat template, or is named after one that has it") {
  using slm::testing::GgufBuilder;
  const slm::testing::TemporaryFolder folder;
  const auto file = [&](const std::string& name, const GgufBuilder& builder) {
    return folder.write(name + ".gguf", builder.build());
  };
  const auto stated = chat::choose(file("m", GgufBuilder().string("tokenizer.chat_template", chatml())));
  CHECK(stated.value == Template::chatml);
  CHECK_FALSE(stated.guessed);
  const auto bare = folder.write("Mistral-7B-Instruct-v0.3", GgufBuilder().build());
  CHECK(chat::choose(bare).value == Template::mistral_v03);
  const auto guess = chat::choose(file("Qwen2.5-0.5B-Instruct-Q4_K_M", GgufBuilder()));
  CHECK(guess.value == Template::qwen25);
  CHECK(guess.guessed);
  CHECK(chat::recognise_model(file("m", GgufBuilder().string("general.name", "Mistral 7B Instruct v0.2"))) ==
        Template::mistral_v02);
  const auto refusal = [&](const GgufBuilder& builder) {
    return error_id([&] { chat::recognise_model(file("m", builder)); });
  };
  CHECK(refusal(GgufBuilder()) == "chat.unrecognised");
  CHECK(refusal(GgufBuilder().string("tokenizer.chat_template", "{{ x }}")) == "chat.unrecognised");
  CHECK(refusal(GgufBuilder().string("tokenizer.chat_template", chatml("Hi"))) == "chat.unrecognised");
}

TEST_CASE("names lead to templates and back") {
  for (const chat::NamedTemplate& known : chat::templates) {
    CHECK(chat::parse_template(known.name) == known.value);
    CHECK(chat::name_of(known.value) == known.name);
  }
  try {
    chat::parse_template("lama");
    FAIL("no error");
  } catch (const slm::Error& error) {
    CHECK(error.id() == "chat.unknown-template");
    CHECK(std::string{error.what()}.find("qwen-2.5, qwen-3") != std::string::npos);
  }
}

TEST_CASE("a template is recognised by its whole source") {
  const auto is = [](std::string_view jinja, std::optional<Template> expected) {
    INFO(jinja);
    CHECK(chat::recognise(jinja) == expected);
  };
  const auto with_default = [](const std::string& system) {
    const std::string first = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" +
                              system + "<|im_end|>\\n' }}{% endif %}";
    return replaced(chatml(), "messages %}", "messages %}" + first);
  };
  is(chatml(), Template::chatml);
  is(with_default("You are a helpful assistant."), Template::qwen2);
  is(with_default("You are a helpful AI assistant named SmolLM, trained by Hugging Face"), Template::smollm2);
  is(llama3, Template::llama3);
  is(zephyr("\n"), Template::zephyr);

  is(with_default("You are a helpful pirate."), std::nullopt);
  is(with_default("You are Qwen, created by Alibaba Cloud. You are a helpful assistant. Answer in verse."),
     std::nullopt);
  is(chatml("", "message['content'] | trim"), std::nullopt);
  is(chatml("{{ bos_token }}"), std::nullopt);
  is(chatml() + "{% if not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}", std::nullopt);
  is(replaced(llama3, "{% set loop", "{{ 'Cutting Knowledge Date: December 2023' }}{% set loop"), std::nullopt);
  is(replaced(llama3, " | trim", ""), std::nullopt);
  is(replaced(zephyr("\n"), "'<|system|>", "' <|system|>"), std::nullopt);
  is("{{ '[INST] ' + said + ' [/INST]' }}{{ said + eos_token }}", std::nullopt);
  is("{{'<|user|>\\n' + said + '<|end|>\\n'}}", std::nullopt);
  is("", std::nullopt);
}

TEST_CASE("line ends, a byte order mark and a last newline do not change a template") {
  for (const std::string line : {"\n", "\r\n", "\r"}) {
    CHECK(chat::recognise(zephyr(line)) == Template::zephyr);
    CHECK(chat::recognise("\xEF\xBB\xBF" + zephyr(line) + line) == Template::zephyr);
    CHECK(chat::recognise(zephyr(line) + line + line) == std::nullopt);
  }
}

TEST_CASE("the digests are SHA-256, each of one template, and all but three templates have some") {
  CHECK(slm::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(slm::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(slm::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(slm::sha256(std::string(1000, 'a')) == "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
  std::set<std::string_view> digests;
  std::set<Template> known;
  for (const auto& source : chat::detail::sources) {
    CHECK(source.digest.size() == 64);
    CHECK(digests.insert(source.digest).second);
    known.insert(source.value);
  }
  // plain is no template, and the first revisions of Mistral's wrote no space before an answer.
  for (const Template none : {Template::plain, Template::mistral_v01, Template::mistral_v02})
    CHECK(!known.contains(none));
  CHECK(known.size() == chat::templates.size() - 3);
}

TEST_CASE("a folder says which template it wants") {
  const slm::testing::TemporaryFolder scratch;
  const auto folder = [&](const std::string& name, const std::string& model_type, const std::string& config = "") {
    const auto path = scratch.path() / name;
    std::filesystem::create_directories(path);
    std::ofstream(path / "config.json") << Json{{"model_type", model_type}}.dump();
    if (!config.empty()) std::ofstream(path / "tokenizer_config.json") << config;
    return path;
  };
  const auto stating = [](Json fields) { return fields.dump(); };
  const auto anything = folder("anything", "llama", stating({{"chat_template", llama3}}));
  CHECK(chat::recognise_model(anything) == Template::llama3);
  CHECK_FALSE(chat::choose(anything).guessed);
  std::ofstream(anything / "chat_template.json") << stating({{"chat_template", "{{ other }}"}});
  CHECK(chat::recognise_model(anything) == Template::llama3);
  std::ofstream(anything / "chat_template.jinja", std::ios::binary) << zephyr("\r\n") + "\r\n";
  CHECK(chat::recognise_model(anything) == Template::zephyr);
  const auto beside = folder("beside", "llama");
  std::ofstream(beside / "chat_template.json") << stating({{"chat_template", chatml()}});
  CHECK(chat::recognise_model(beside) == Template::chatml);
  const Json list =
      Json::array({{{"name", "tool_use"}, {"template", "?"}}, {{"name", "default"}, {"template", chatml()}}});
  CHECK(chat::recognise_model(folder("named", "mistral", stating({{"chat_template", list}}))) == Template::chatml);

  CHECK(chat::recognise_model(folder("AMD-OLMo-1B-SFT", "olmo")) == Template::amd_olmo);
  CHECK(chat::recognise_model(folder("AMD-OLMo-1B-SFT-DPO", "olmo")) == Template::amd_olmo);
  CHECK(chat::recognise_model(folder("Llama-2-7b-chat-hf", "llama")) == Template::llama2);
  CHECK(chat::recognise_model(folder("Meta-Llama-3-8B-Instruct", "llama")) == Template::llama3);
  CHECK(chat::recognise_model(folder("Llama-3.1-8B-Instruct", "llama")) == Template::llama31);
  CHECK(chat::recognise_model(folder("Llama-3.2-1B-Instruct", "llama")) == Template::llama32);
  CHECK(chat::recognise_model(folder("Llama-3.3-70B-Instruct", "llama")) == Template::llama31);
  CHECK(chat::recognise_model(folder("Mistral-7B-Instruct-v0.1", "mistral")) == Template::mistral_v01);
  CHECK(chat::recognise_model(folder("Mistral-7B-Instruct-v0.3", "mistral")) == Template::mistral_v03);
  CHECK(chat::recognise_model(folder("Phi-3-mini-4k-instruct", "phi3")) == Template::phi3);
  CHECK(chat::recognise_model(folder("Qwen2.5-0.5B-Instruct", "qwen2")) == Template::qwen25);
  CHECK(chat::recognise_model(folder("Qwen3-0.6B", "qwen3")) == Template::qwen3);
  CHECK(chat::choose(folder("Qwen3-0.6B", "qwen3")).guessed);
  CHECK(chat::recognise_model(folder("Qwen3-0.6B", "qwen3") / "") == Template::qwen3);

  const auto refusal = [&](const std::filesystem::path& path) {
    return error_id([&] { chat::recognise_model(path); });
  };
  CHECK(refusal(folder("AMD-OLMo-1B", "olmo")) == "chat.unrecognised");
  CHECK(refusal(folder("Llama-2-7b-hf", "llama")) == "chat.unrecognised");
  CHECK(refusal(folder("AMD-OLMo-1B-SFT-2", "llama")) == "chat.unrecognised");
  CHECK(refusal(folder("Qwen3-0.6B-Base", "qwen3")) == "chat.unrecognised");
  CHECK(refusal(folder("Qwen3-4B-Instruct-2507", "qwen3")) == "chat.unrecognised");
  CHECK(refusal(folder("mine", "qwen3")) == "chat.unrecognised");
  CHECK(refusal(folder("Llama-2-7b-chat-other", "llama", R"({"chat_template": "{{ 'other' }}"})")) ==
        "chat.unrecognised");
  CHECK(refusal(folder("number", "llama", R"({"chat_template": 7})")) == "json.bad-field");
  CHECK(refusal(folder("list", "llama", R"({"chat_template": [7]})")) == "json.bad-field");
  CHECK(refusal(folder("torn", "llama", "{\"chat_template\": ")) == "json.malformed");
  CHECK(refusal(scratch.path() / "absent") == "chat.unrecognised");
}

TEST_CASE("a template is guessed by the model's own name, not by the folders above it") {
  const slm::testing::TemporaryFolder scratch;
  const auto refusal = [&](const std::filesystem::path& path) {
    return error_id([&] { chat::recognise_model(path); });
  };
  const auto mine = scratch.path() / "tinyllama-chat-experiments" / "mine";
  std::filesystem::create_directories(mine);
  std::ofstream(mine / "config.json") << Json{{"model_type", "llama"}}.dump();
  CHECK(refusal(mine) == "chat.unrecognised");
  std::ofstream(mine / "config.json") << Json{{"model_type", "llama"}, {"_name_or_path", "llama-2-chat/base"}}.dump();
  CHECK(refusal(mine) == "chat.unrecognised");
  std::ofstream(mine / "config.json") << Json{{"model_type", "llama"}, {"_name_or_path", "a/TinyLlama-Chat"}}.dump();
  CHECK(chat::choose(mine).value == Template::zephyr);
  CHECK(chat::choose(mine).guessed);
}

TEST_CASE("a template whose special tokens are others than slm writes is refused") {
  const slm::testing::TemporaryFolder scratch;
  const auto folder = [&](const Json& config) {
    std::ofstream(scratch.path() / "tokenizer_config.json") << config.dump();
    return scratch.path();
  };
  const auto refusal = [&](const std::filesystem::path& path) {
    return error_id([&] { chat::recognise_model(path); });
  };
  CHECK(chat::recognise_model(folder({{"chat_template", zephyr("\n")}})) == Template::zephyr);
  CHECK(chat::recognise_model(folder({{"chat_template", zephyr("\n")}, {"eos_token", {{"content", "</s>"}}}})) ==
        Template::zephyr);
  CHECK(refusal(folder({{"chat_template", zephyr("\n")}, {"eos_token", "<|end|>"}})) == "chat.unrecognised");
  CHECK(refusal(folder({{"chat_template", llama3}, {"bos_token", nullptr}})) == "chat.unrecognised");
  CHECK(chat::recognise_model(folder({{"chat_template", llama3}, {"bos_token", "<|begin_of_text|>"}})) ==
        Template::llama3);
  folder({{"chat_template", zephyr("\n")}});
  std::ofstream(scratch.path() / "special_tokens_map.json") << Json{{"eos_token", "<|end|>"}}.dump();
  CHECK(refusal(scratch.path()) == "chat.unrecognised");

  using slm::testing::GgufBuilder;
  const auto file = [&](const std::string& end) {
    return scratch.write("m.gguf", GgufBuilder()
                                       .string("tokenizer.chat_template", zephyr("\n"))
                                       .strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", end})
                                       .u32("tokenizer.ggml.eos_token_id", 1)
                                       .build());
  };
  CHECK(chat::recognise_model(file("</s>")) == Template::zephyr);
  CHECK(refusal(file("<|end|>")) == "chat.unrecognised");
}
