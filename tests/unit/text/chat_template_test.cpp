// Which chat template a folder or a GGUF file asks for, by what only that template says or by the model's name.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "slm/text/chat.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/temporary.hpp"

namespace chat = slm::chat;
using chat::Template;
using slm::Json;
using slm::testing::error_id;

TEST_CASE("a GGUF file says its chat template, or is named after one that has it") {
  using slm::testing::GgufBuilder;
  const slm::testing::TemporaryFolder folder;
  const auto file = [&](const std::string& name, const GgufBuilder& builder) {
    return folder.write(name + ".gguf", builder.build());
  };
  const std::string chatml = "{{ '<|im_start|>' + message['role'] + '\n' }}";
  CHECK(chat::recognise_model(file("m", GgufBuilder().string("tokenizer.chat_template", chatml))) == Template::chatml);
  CHECK(chat::recognise_model(file("Qwen2.5-0.5B-Instruct-Q4_K_M", GgufBuilder())) == Template::qwen25);
  CHECK(chat::recognise_model(file("m", GgufBuilder().string("general.name", "Mistral 7B Instruct v0.2"))) ==
        Template::mistral_v02);
  CHECK(error_id([&] { chat::recognise_model(file("m", GgufBuilder())); }) == "chat.unrecognised");
  CHECK(error_id([&] {
          chat::recognise_model(file("m", GgufBuilder().string("tokenizer.chat_template", "{{ x }}")));
        }) == "chat.unrecognised");
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

TEST_CASE("templates are recognised by what only they say") {
  const auto is = [](std::string_view jinja, std::optional<Template> expected) {
    INFO(jinja);
    CHECK(chat::recognise(jinja) == expected);
  };
  is("{{ bos_token + \"[INST] \" + '<<SYS>>\\n' + system }}", Template::llama2);
  is("{{ '<|start_header_id|>' + role + '<|eot_id|>' }}", Template::llama3);
  is("{{ '<|start_header_id|>' }}{{ \"Cutting Knowledge Date: December 2023\\n\" }}{{ '<|eot_id|>' }}",
     Template::llama31);
  is("{{ '[INST] ' + said + ' [/INST]' }}{{ said + eos_token + ' ' }}", Template::mistral_v01);
  is("{{ '[INST] ' + said + ' [/INST]' }}{{ said + eos_token }}", Template::mistral_v02);
  is("{{- \" [INST] \" + said + \" [/INST]\" }}{{- \" \" + said + eos_token}}", Template::mistral_spaced);
  is("{{- \"[INST] \" + said + \"[/INST]\" }}", Template::mistral_v03);
  is("{{- \"[INST]\" + said + \"[/INST]\" }}", std::nullopt);
  is("{{- '[SYSTEM_PROMPT]' }}{{- '[INST] ' + said + '[/INST]' }}", std::nullopt);
  is("{{'<|user|>\\n' + said + '<|end|>\\n'}}", Template::phi3);
  is("{{ bos_token }}{{'<|user|>\\n' + said + '<|end|>\\n'}}", std::nullopt);
  is("{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}", Template::zephyr);
  is("{{ eos_token }}{{ '<|user|>\\n' + message[\"content\"] }}{{ '<|assistant|>' }}", Template::amd_olmo);
  is("{{'<|im_start|>' + message['role'] + '\n'}}", Template::chatml);
  is("{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}", Template::qwen2);
  is("{{ '<|im_start|>system\\nYou are a helpful pirate.<|im_end|>\\n' }}", std::nullopt);
  is("{{ '<|im_start|>' }}{{ 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}",
     Template::qwen25);
  is("{{ '<|im_start|>' }}{{ split('</think>') }}{% if enable_thinking %}", Template::qwen3);
  is("{{ '<|im_start|>user<|im_sep|>' }}", std::nullopt);
  is("", std::nullopt);
  is("{{ '<start_of_turn>' }}", std::nullopt);
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
  const std::string llama3 = R"({"chat_template": "{{ '<|start_header_id|>' }}{{ '<|eot_id|>' }}"})";
  CHECK(chat::recognise_model(folder("anything", "llama", llama3)) == Template::llama3);
  const auto both = folder("both", "llama", llama3);
  std::ofstream(both / "chat_template.jinja") << "{{ '[INST] <<SYS>>' }}";
  CHECK(chat::recognise_model(both) == Template::llama2);
  const std::string named = R"({"chat_template": [{"name": "tool_use", "template": "?"},
      {"name": "default", "template": "{{ '[INST] ' }}{{ '[/INST]' }}"}]})";
  CHECK(chat::recognise_model(folder("named", "mistral", named)) == Template::mistral_v03);

  CHECK(chat::recognise_model(folder("AMD-OLMo-1B-SFT", "olmo")) == Template::amd_olmo);
  CHECK(chat::recognise_model(folder("AMD-OLMo-1B-SFT-DPO", "olmo")) == Template::amd_olmo);
  CHECK(chat::recognise_model(folder("Llama-2-7b-chat-hf", "llama")) == Template::llama2);
  CHECK(chat::recognise_model(folder("Meta-Llama-3-8B-Instruct", "llama")) == Template::llama3);
  CHECK(chat::recognise_model(folder("Llama-3.2-1B-Instruct", "llama")) == Template::llama31);
  CHECK(chat::recognise_model(folder("Mistral-7B-Instruct-v0.1", "mistral")) == Template::mistral_v01);
  CHECK(chat::recognise_model(folder("Mistral-7B-Instruct-v0.3", "mistral")) == Template::mistral_v03);
  CHECK(chat::recognise_model(folder("Phi-3-mini-4k-instruct", "phi3")) == Template::phi3);
  CHECK(chat::recognise_model(folder("Qwen2.5-0.5B-Instruct", "qwen2")) == Template::qwen25);
  CHECK(chat::recognise_model(folder("Qwen3-0.6B", "qwen3")) == Template::qwen3);
  CHECK(chat::recognise_model(folder("models--AMD-OLMo-1B-SFT/snapshots/ab12", "olmo")) == Template::amd_olmo);

  const auto refusal = [&](const std::filesystem::path& path) {
    return error_id([&] { chat::recognise_model(path); });
  };
  CHECK(refusal(folder("AMD-OLMo-1B", "olmo")) == "chat.unrecognised");
  CHECK(refusal(folder("Llama-2-7b-hf", "llama")) == "chat.unrecognised");
  CHECK(refusal(folder("AMD-OLMo-1B-SFT-2", "llama")) == "chat.unrecognised");
  CHECK(refusal(folder("Qwen3-0.6B-Base", "qwen3")) == "chat.unrecognised");
  CHECK(refusal(folder("Llama-2-7b-chat-other", "llama", R"({"chat_template": "{{ 'other' }}"})")) ==
        "chat.unrecognised");
  CHECK(refusal(folder("number", "llama", R"({"chat_template": 7})")) == "json.bad-field");
  CHECK(refusal(folder("list", "llama", R"({"chat_template": [7]})")) == "json.bad-field");
  CHECK(refusal(folder("torn", "llama", "{\"chat_template\": ")) == "json.malformed");
  CHECK(refusal(scratch.path() / "absent") == "chat.unrecognised");
}
