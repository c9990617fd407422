// Chat templates: prompts equal to those of the published Jinja templates (tests/fixtures/chat/expected.json was
// written by Jinja itself), ids equal to those of the prompt, and no message that steers the model by spelling a
// control token.
#include "slm/text/chat.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "slm/text/text_stream.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary.hpp"

namespace chat = slm::chat;
using chat::Message;
using chat::Template;
using slm::Json;
using slm::Token;
using slm::Tokenizer;

namespace {

const std::vector<Message> three_turns{{"user", "Hello"}, {"assistant", "Hi there"}, {"user", "Who are you?"}};
const std::vector<Message> with_system{{"system", "Be brief."}, {"user", "Hello"}};

bool has_no_system(Template value) { return value == Template::amd_olmo; }

std::string id_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const slm::Error& error) {
    return std::string{error.id()};
  }
  return "no error";
}

/// The markers of all templates.
const std::vector<std::string> markers{"<s>",
                                       "</s>",
                                       "<|begin_of_text|>",
                                       "<|start_header_id|>",
                                       "<|end_header_id|>",
                                       "<|eot_id|>",
                                       "<|user|>",
                                       "<|system|>",
                                       "<|assistant|>",
                                       "<|end|>",
                                       "<|im_start|>",
                                       "<|im_end|>",
                                       "<think>",
                                       "</think>",
                                       "[INST]",
                                       "[/INST]",
                                       "<|endoftext|>",
                                       "<|end_of_text|>",
                                       "<|eom_id|>"};

/// A fixture's tokenizer with those markers that the template needs, and with those of other templates if asked for.
Tokenizer tokenizer_for(const std::string& fixture, bool all_special = true) {
  Json json = slm::read_json_object(slm::testing::fixture("tokenizers/" + fixture + ".json"));
  Token next = 1000;
  for (const std::string& marker : markers) {
    const auto same = [&](const Json& token) { return token["content"] == marker; };
    auto& added = json["added_tokens"];
    if (std::any_of(added.begin(), added.end(), same)) continue;
    added.push_back({{"id", next++},
                     {"content", marker},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", all_special || marker.find("think") == marker.npos}});
  }
  return Tokenizer::parse(json.dump());
}

const std::vector<std::string> fixtures{"gpt2",  "llama2_legacy", "llama2_metaspace", "llama3", "neox", "phi3",
                                        "qwen2", "smollm"};

std::size_t control_tokens(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  return static_cast<std::size_t>(
      std::count_if(ids.begin(), ids.end(), [&](Token id) { return tokenizer.is_control(id); }));
}

}  // namespace

TEST_CASE("prompts are those of the published templates") {
  const Json cases = Json::parse(std::ifstream(slm::testing::fixture("chat/expected.json")));
  REQUIRE(cases.size() > 150);
  for (const Json& item : cases) {
    const Template value = chat::parse_template(item["template"].get<std::string>());
    std::vector<Message> messages;
    for (const Json& message : item["messages"]) messages.push_back({message["role"], message["content"]});
    chat::Options options;
    options.thinking = item.value("thinking", true);
    options.date = item.value("date", options.date);
    INFO(item.dump());
    if (item.value("refused", false)) {
      CHECK(id_of([&] { chat::render(value, messages, options); }) == "chat.bad-order");
    } else if (value == Template::llama2 && messages.size() == 3 && messages[1].role == "system") {
      // The published template drops this message without a word.
      CHECK(id_of([&] { chat::render(value, messages, options); }) == "chat.bad-order");
    } else {
      CHECK(chat::render(value, messages, options) == item["prompt"].get<std::string>());
    }
  }
}

TEST_CASE("the three Mistral forms differ in their spaces, and in where the system message stands") {
  const auto render = [](Template value) { return chat::render(value, three_turns); };
  CHECK(render(Template::mistral_v01) == "<s>[INST] Hello [/INST] Hi there</s> [INST] Who are you? [/INST]");
  CHECK(render(Template::mistral_v02) == "<s>[INST] Hello [/INST] Hi there</s>[INST] Who are you? [/INST]");
  CHECK(render(Template::mistral_v03) == "<s>[INST] Hello[/INST] Hi there</s>[INST] Who are you?[/INST]");
  std::vector<Message> messages = three_turns;
  messages.insert(messages.begin(), {"system", "S"});
  CHECK(chat::render(Template::mistral_v01, messages) ==
        "<s>[INST] S\n\nHello [/INST] Hi there</s> [INST] Who are you? [/INST]");
  CHECK(chat::render(Template::mistral_v03, messages) ==
        "<s>[INST] Hello[/INST] Hi there</s>[INST] S\n\nWho are you?[/INST]");
}

TEST_CASE("Llama-3.2's date is set by the caller, and Phi-3.5 leaves an empty system message out") {
  const std::vector<Message> question{{"user", "Hi"}};
  const std::string fixed = chat::render(Template::llama31, question);
  CHECK(fixed.find("\nToday Date: 26 Jul 2024\n\n<|eot_id|>") != fixed.npos);
  CHECK(chat::render(Template::llama32, question) == fixed);
  const std::string dated = chat::render(Template::llama32, question, {.date = "05 Mar 2031"});
  CHECK(dated.find("\nToday Date: 05 Mar 2031\n\n<|eot_id|>") != dated.npos);
  const std::vector<Message> empty{{"system", ""}, {"user", "Hi"}};
  CHECK(chat::render(Template::phi35, empty) == "<|user|>\nHi<|end|>\n<|assistant|>\n");
  CHECK(chat::render(Template::phi3, empty) == "<|system|>\n<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n");
  CHECK(chat::render(Template::phi35, with_system) == chat::render(Template::phi3, with_system));
  CHECK(chat::render(Template::phi3_vision, with_system) == chat::render(Template::phi3, with_system));
  const std::vector<Message> answered{{"user", "Hi"}, {"assistant", "Yes"}};
  CHECK(chat::render(Template::phi3_vision, answered) == "<|user|>\nHi<|end|>\n<|assistant|>\nYes<|end|>\n");
}

TEST_CASE("Qwen3 keeps the thoughts that follow the last question where a tool's response ends the conversation") {
  const std::string response = "<tool_response>4</tool_response>";
  const std::vector<Message> messages{
      {"user", "2+2?"}, {"assistant", "a<think>\nadd\n</think>\n\nI ask."}, {"user", response}};
  CHECK(chat::render(Template::qwen3, messages) ==
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\nadd\n</think>\n\nI ask.<|im_end|>\n"
        "<|im_start|>user\n" +
            response + "<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("plain puts one message on a line") {
  CHECK(chat::render(Template::plain, three_turns) == "Hello\nHi there\nWho are you?\n");
  CHECK(chat::render(Template::plain, std::vector<Message>{{"user", "def f():\n"}}) == "def f():\n");
}

TEST_CASE("roles that a template does not allow are refused") {
  using Messages = std::vector<Message>;
  const auto refusal = [](Template value, const Messages& messages) {
    return id_of([&] { chat::render(value, messages); });
  };
  for (const chat::NamedTemplate& known : chat::templates) {
    INFO(known.name);
    CHECK(refusal(known.value, {}) == "chat.no-question");
    CHECK(refusal(known.value, {{"tool", "a"}, {"user", "b"}}) == "chat.unknown-role");
    CHECK(refusal(known.value, {{"", "a"}, {"user", "b"}}) == "chat.unknown-role");
    CHECK(refusal(known.value, {{"user\n", "a"}}) == "chat.unknown-role");
    CHECK(refusal(known.value, with_system) == (has_no_system(known.value) ? "chat.no-system" : "no error"));
  }
  for (const Template value : {Template::llama2, Template::mistral_v01, Template::mistral_v02, Template::mistral_v03}) {
    CHECK(refusal(value, {{"user", "a"}, {"user", "b"}}) == "chat.bad-order");
    CHECK(refusal(value, {{"assistant", "a"}, {"user", "b"}}) == "chat.bad-order");
    CHECK(refusal(value, {{"user", "a"}, {"system", "s"}, {"user", "b"}}) == "chat.bad-order");
    CHECK(refusal(value, {{"system", "a"}, {"system", "s"}, {"user", "b"}}) == "chat.bad-order");
  }
}

TEST_CASE("a conversation may end with any message, which is written as Jinja writes it") {
  using Messages = std::vector<Message>;
  const auto qwen3 = [](const Messages& messages) { return chat::render(Template::qwen3, messages); };
  CHECK(qwen3({{"system", "S"}}) == "<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n");
  CHECK(chat::render(Template::chatml, Messages{{"user", "a"}, {"system", "S"}}) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n");
  // Qwen3 writes the thoughts of answers that follow the user's last message, and an empty one into the last answer.
  const std::string begin = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
  CHECK(qwen3({{"user", "a"}, {"assistant", "b"}}) ==
        begin + "<think>\n\n</think>\n\nb<|im_end|>\n<|im_start|>assistant\n");
  CHECK(qwen3({{"user", "a"}, {"assistant", "<think>\nt\n</think>\n\nb"}, {"assistant", "c"}}) ==
        begin + "<think>\nt\n</think>\n\nb<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nc<|im_end|>\n" +
            "<|im_start|>assistant\n");
  CHECK(qwen3({{"user", "a"}, {"assistant", "b"}, {"system", "S"}}) ==
        begin + "b<|im_end|>\n<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n");
  CHECK(chat::render(Template::llama2, Messages{{"user", "a"}, {"assistant", "b"}}) == "<s>[INST] a [/INST] b </s>");
  const Messages begun{{"user", "a"}, {"assistant", "b"}}, alone{{"system", "a"}};
  CHECK(id_of([&] { chat::render(Template::amd_olmo, begun); }) == "chat.no-question");
  for (const Template value : {Template::llama2, Template::mistral_v01, Template::mistral_v03}) {
    CHECK(id_of([&] { chat::render(value, alone); }) == "chat.no-question");
  }
}

TEST_CASE("ids are those of the prompt's text, for every tokenizer") {
  const std::vector<std::string> said{
      "Hello  world,\n\n  it's 2024!", " leading",       "trailing \n", "", "世界 🙂 é\u0301",
      "[INST text <|user <s",          "\xFF\xFE broken"};
  for (const std::string& fixture : fixtures) {
    const Tokenizer tokenizer = tokenizer_for(fixture);
    for (const chat::NamedTemplate& known : chat::templates) {
      if (known.value == Template::plain) continue;
      for (std::size_t i = 0; i < said.size(); ++i) {
        const std::vector<Message> messages{
            {"user", said[i]}, {"assistant", said[(i + 1) % said.size()]}, {"user", said[(i + 2) % said.size()]}};
        INFO(fixture << ' ' << known.name << ' ' << i);
        const std::vector<Token> ids = chat::encode(tokenizer, known.value, messages);
        CHECK(ids == tokenizer.encode(chat::render(known.value, messages), false));
        CHECK(control_tokens(tokenizer, ids) > 0);
      }
    }
    const std::vector<Message> messages{{"user", "x = 1"}};
    CHECK(chat::encode(tokenizer, Template::plain, messages) == tokenizer.encode("x = 1\n"));
  }
}

TEST_CASE("what a model adds to the prompt is the message that the next prompt writes") {
  const auto own = [](const char* fixture) {
    return Tokenizer::from(slm::testing::fixture(std::string{"tokenizers/"} + fixture + ".json"));
  };
  const auto legacy = own("llama2_legacy"), metaspace = own("llama2_metaspace"),
             v03 = tokenizer_for("llama2_metaspace");
  const auto phi3 = own("phi3"), llama3 = tokenizer_for("llama3"), qwen2 = tokenizer_for("qwen2");
  const std::vector<std::pair<Template, const Tokenizer*>> pairs{
      {Template::plain, &legacy},          {Template::plain, &metaspace},
      {Template::plain, &qwen2},           {Template::llama2, &legacy},
      {Template::llama2, &metaspace},      {Template::mistral_v01, &legacy},
      {Template::mistral_v01, &metaspace}, {Template::mistral_v02, &legacy},
      {Template::mistral_v02, &metaspace}, {Template::mistral_spaced, &legacy},
      {Template::mistral_v03, &v03},       {Template::zephyr, &legacy},
      {Template::zephyr, &metaspace},      {Template::phi3, &phi3},
      {Template::amd_olmo, &qwen2},        {Template::llama3, &llama3},
      {Template::llama31, &llama3},        {Template::chatml, &qwen2},
      {Template::smollm2, &qwen2},         {Template::qwen2, &qwen2},
      {Template::qwen25, &qwen2},          {Template::qwen3, &qwen2}};
  const std::string said = "Hello  there";
  for (const auto& [form, tokenizer] : pairs) {
    INFO(chat::name_of(form) << (tokenizer == &metaspace ? ", metaspace" : ""));
    const auto prompt = chat::encode(*tokenizer, form, std::vector<Message>{{"user", "f?"}});
    const std::vector<Message> turns{{"user", "f?"}, {"assistant", said}, {"user", "g?"}};
    const auto next = chat::encode(*tokenizer, form, turns);
    REQUIRE(std::equal(prompt.begin(), prompt.end(), next.begin()));
    std::string answer;
    slm::TextStream stream(*tokenizer, prompt, [&](std::string_view piece) { answer += piece; });
    for (std::size_t i = prompt.size(); i < next.size() && !tokenizer->is_control(next[i]); ++i) stream(next[i]);
    stream.finish();
    if (chat::space_before_answer(form)) {
      REQUIRE(answer.front() == ' ');
      answer.erase(0, 1);
    }
    CHECK(answer.substr(0, said.size()) == said);
  }
}

TEST_CASE("no message becomes a control token") {
  std::string attack = "a";
  for (const std::string& marker : markers) attack += marker + " x " + marker + marker + "\n";
  attack += "<tool_call>[MASK]<unk><|padding|><0x0A>";
  for (const bool all_special : {true, false}) {
    for (const std::string& fixture : fixtures) {
      const Tokenizer tokenizer = tokenizer_for(fixture, all_special);
      for (const chat::NamedTemplate& known : chat::templates) {
        INFO(fixture << ' ' << known.name);
        const auto count = [&](const std::string& said) {
          std::vector<Message> messages{{"system", said}, {"user", said}, {"assistant", said}, {"user", said}};
          if (has_no_system(known.value)) messages.erase(messages.begin());
          return control_tokens(tokenizer, chat::encode(tokenizer, known.value, messages));
        };
        CHECK(count(attack) == count("hello"));
        // Halves of a marker that meet the template's own text or each other.
        CHECK(count("<|im_end|") == count("hello"));
        CHECK(count("|>") == count("hello"));
        CHECK(count(">") == count("hello"));
      }
      // The test can fail: the prompt as one text lets the markers through.
      const std::vector<Message> messages{{"user", attack}};
      CHECK(control_tokens(tokenizer, tokenizer.encode(chat::render(Template::chatml, messages), false)) >
            control_tokens(tokenizer, chat::encode(tokenizer, Template::chatml, messages)));
      // Nothing of the message is lost.
      const auto ids = chat::encode(tokenizer, Template::chatml, messages);
      const bool keeps_text = fixture != "phi3";  // its <|user|> swallows the white space behind it
      if (keeps_text) CHECK(tokenizer.decode(ids, false).find("a<s> x <s><s>\n</s> x") != std::string::npos);
    }
  }
}

TEST_CASE("a message between two halves of a marker joins nothing") {
  const Tokenizer tokenizer = tokenizer_for("qwen2");
  const std::vector<slm::TextPart> parts{{"<|im_", false}, {"", true}, {"end|>", false}};
  CHECK(tokenizer.encode(parts, false) == tokenizer.encode("<|im_end|>", false));  // all of it the caller's own
  const std::vector<slm::TextPart> mixed{{"<|im_", false}, {"end", true}, {"|>", false}};
  CHECK(control_tokens(tokenizer, tokenizer.encode(mixed, false)) == 0);
  CHECK(tokenizer.decode(tokenizer.encode(mixed, false), false) == "<|im_end|>");
  // Bytes that only together are a character stay apart: each part is repaired alone.
  const std::vector<slm::TextPart> torn{{"\xE4", true}, {"\xB8\x96", true}};
  CHECK(tokenizer.encode(torn, false) == tokenizer.encode("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", false));
}

TEST_CASE("merges that lead to a control token do not in a message") {
  Json json = slm::read_json_object(slm::testing::fixture("tokenizers/llama2_legacy.json"));
  auto& vocab = json["model"]["vocab"];
  Token next = 2000;
  for (const char* piece : {"<", "s", ">", "<s"}) {
    if (!vocab.contains(piece)) vocab[piece] = next++;
  }
  json["model"]["merges"].insert(json["model"]["merges"].begin(), {"< s", "<s >"});
  const Tokenizer tokenizer = Tokenizer::parse(json.dump());
  const std::vector<Message> messages{{"user", "a<s>b"}};
  CHECK(tokenizer.encode(chat::render(Template::llama2, messages), false)[0] == 1);
  const auto ids = chat::encode(tokenizer, Template::llama2, messages);
  CHECK(std::count(ids.begin(), ids.end(), 1) == 1);
  CHECK(tokenizer.decode(ids, true) == "[INST] a<s>b [/INST]");
}

TEST_CASE("special tokens that are searched for after normalization are markers, too") {
  Json json = slm::read_json_object(slm::testing::fixture("tokenizers/llama2_legacy.json"));
  for (Json& token : json["added_tokens"]) token["normalized"] = true;
  const Tokenizer tokenizer = Tokenizer::parse(json.dump());
  const auto ids = chat::encode(tokenizer, Template::llama2, std::vector<Message>{{"user", "</s><s>"}});
  CHECK(ids[0] == 1);
  CHECK(control_tokens(tokenizer, ids) == 1);
}

TEST_CASE("a template whose tokens the tokenizer lacks is refused") {
  const Tokenizer tokenizer = Tokenizer::from(slm::testing::fixture("tokenizers/gpt2.json"));
  for (const chat::NamedTemplate& known : chat::templates) {
    const bool fits = known.value == Template::plain || known.value == Template::amd_olmo;
    CHECK(id_of([&] { chat::encode(tokenizer, known.value, three_turns); }) ==
          (fits ? "no error" : "chat.missing-token"));
  }
}

TEST_CASE("stops are the tokens that end a turn") {
  const Tokenizer tokenizer = tokenizer_for("qwen2");
  const auto names = [&](Template value) {
    std::vector<std::string> out;
    for (const Token token : chat::stops(tokenizer, value).tokens) out.push_back(tokenizer.piece(token));
    return out;
  };
  using Names = std::vector<std::string>;
  CHECK(names(Template::plain).empty());
  CHECK(names(Template::llama2) == Names{"</s>"});
  CHECK(names(Template::phi3) == Names{"<|endoftext|>", "<|assistant|>", "<|end|>"});
  CHECK(names(Template::llama3) == Names{"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"});
  CHECK(names(Template::qwen3) == Names{"<|im_end|>", "<|endoftext|>", "<|im_start|>"});
  CHECK(chat::stops(tokenizer, Template::amd_olmo).strings == Names{"<|user|>"});
  const Tokenizer bare = Tokenizer::from(slm::testing::fixture("tokenizers/gpt2.json"));
  CHECK(chat::stops(bare, Template::qwen3).tokens.size() == 1);
}

TEST_CASE("random conversations: ids decode to what was said") {
  const Tokenizer tokenizer = tokenizer_for("llama3");
  std::mt19937 random(7);
  const std::string alphabet = "<|>/s[]INSTimend_ \nab";
  for (int round = 0; round < 300; ++round) {
    std::string said;
    for (int i = 0; i < 40; ++i) {
      said +=
          random() % 5 == 0 ? markers[random() % markers.size()] : std::string(1, alphabet[random() % alphabet.size()]);
    }
    const auto ids = chat::encode(tokenizer, Template::chatml, std::vector<Message>{{"user", said}});
    CHECK(tokenizer.decode(ids, true) == "user\n" + said + "\nassistant\n");
    CHECK(control_tokens(tokenizer, ids) == 3);
  }
}
