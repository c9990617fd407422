// Prompts as ids: equal to those of the prompt's text, and no message that steers the model by spelling a control
// token. What servers change in messages, and what ends an answer.
#include "slm/text/chat.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "slm/io/json.hpp"
#include "slm/text/text_stream.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"

using slm::ChatMessage;
using slm::ChatOptions;
using slm::ChatTemplate;
using slm::Json;
using slm::Token;
using slm::Tokenizer;

namespace {

const std::vector<ChatMessage> three_turns{{"user", "Hello"}, {"assistant", "Hi there"}, {"user", "Who are you?"}};

/// A template that slm has.
ChatTemplate named(const std::string& name) { return ChatTemplate::from({}, name); }

bool has_no_system(const std::string& name) { return name == "amd-olmo"; }

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

TEST_CASE("ids are those of the prompt's text, for every tokenizer") {
  const std::vector<std::string> said{
      "Hello  world,\n\n  it's 2024!", " leading",       "trailing \n", "", "世界 🙂 é\u0301",
      "[INST text <|user <s",          "\xFF\xFE broken"};
  for (const std::string& fixture : fixtures) {
    const Tokenizer tokenizer = tokenizer_for(fixture);
    for (const std::string& known : ChatTemplate::names()) {
      if (known == "plain") continue;
      for (std::size_t i = 0; i < said.size(); ++i) {
        const std::vector<ChatMessage> messages{
            {"user", said[i]}, {"assistant", said[(i + 1) % said.size()]}, {"user", said[(i + 2) % said.size()]}};
        INFO(fixture << ' ' << known << ' ' << i);
        const std::vector<Token> ids = named(known).encode(tokenizer, messages);
        CHECK(ids == tokenizer.encode(named(known).render(messages).text, false));
        CHECK(control_tokens(tokenizer, ids) > 0);
      }
    }
    const std::vector<ChatMessage> messages{{"user", "x = 1"}};
    CHECK(named("plain").encode(tokenizer, messages) == tokenizer.encode("x = 1\n"));
  }
}

TEST_CASE("what a model adds to the prompt is the message that the next prompt writes") {
  const auto own = [](const char* fixture) {
    return Tokenizer::from(slm::testing::fixture(std::string{"tokenizers/"} + fixture + ".json"));
  };
  const auto legacy = own("llama2_legacy"), metaspace = own("llama2_metaspace"),
             v03 = tokenizer_for("llama2_metaspace");
  const auto phi3 = own("phi3"), llama3 = tokenizer_for("llama3"), qwen2 = tokenizer_for("qwen2");
  const std::vector<std::pair<std::string, const Tokenizer*>> pairs{{"plain", &legacy},
                                                                    {"plain", &metaspace},
                                                                    {"plain", &qwen2},
                                                                    {"llama-2", &legacy},
                                                                    {"llama-2", &metaspace},
                                                                    {"mistral-v0.1", &legacy},
                                                                    {"mistral-v0.1", &metaspace},
                                                                    {"mistral-v0.2", &legacy},
                                                                    {"mistral-v0.2", &metaspace},
                                                                    {"mistral-spaced", &legacy},
                                                                    {"mistral-v0.3", &v03},
                                                                    {"zephyr", &legacy},
                                                                    {"zephyr", &metaspace},
                                                                    {"phi-3", &phi3},
                                                                    {"amd-olmo", &qwen2},
                                                                    {"llama-3", &llama3},
                                                                    {"llama-3.1", &llama3},
                                                                    {"chatml", &qwen2},
                                                                    {"smollm-2", &qwen2},
                                                                    {"qwen-2", &qwen2},
                                                                    {"qwen-2.5", &qwen2},
                                                                    {"qwen-3", &qwen2}};
  const std::string said = "Hello  there";
  for (const auto& [form, tokenizer] : pairs) {
    INFO(form << (tokenizer == &metaspace ? ", metaspace" : ""));
    const auto prompt = named(form).encode(*tokenizer, std::vector<ChatMessage>{{"user", "f?"}});
    const std::vector<ChatMessage> turns{{"user", "f?"}, {"assistant", said}, {"user", "g?"}};
    const auto next = named(form).encode(*tokenizer, turns);
    REQUIRE(std::equal(prompt.begin(), prompt.end(), next.begin()));
    std::string answer;
    slm::TextStream stream(*tokenizer, prompt, [&](std::string_view piece) { answer += piece; });
    for (std::size_t i = prompt.size(); i < next.size() && !tokenizer->is_control(next[i]); ++i) stream(next[i]);
    stream.finish();
    if (named(form).space_before_answer(*tokenizer)) {
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
      for (const std::string& known : ChatTemplate::names()) {
        INFO(fixture << ' ' << known);
        const auto count = [&](const std::string& said) {
          std::vector<ChatMessage> messages{{"system", said}, {"user", said}, {"assistant", said}, {"user", said}};
          if (has_no_system(known)) messages.erase(messages.begin());
          return control_tokens(tokenizer, named(known).encode(tokenizer, messages));
        };
        CHECK(count(attack) == count("hello"));
        // Halves of a marker that meet the template's own text or each other.
        CHECK(count("<|im_end|") == count("hello"));
        CHECK(count("|>") == count("hello"));
        CHECK(count(">") == count("hello"));
      }
      // The test can fail: the prompt as one text lets the markers through.
      const std::vector<ChatMessage> messages{{"user", attack}};
      CHECK(control_tokens(tokenizer, tokenizer.encode(named("chatml").render(messages).text, false)) >
            control_tokens(tokenizer, named("chatml").encode(tokenizer, messages)));
      // Nothing of the message is lost.
      const auto ids = named("chatml").encode(tokenizer, messages);
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
  const std::vector<ChatMessage> messages{{"user", "a<s>b"}};
  CHECK(tokenizer.encode(named("llama-2").render(messages).text, false)[0] == 1);
  const auto ids = named("llama-2").encode(tokenizer, messages);
  CHECK(std::count(ids.begin(), ids.end(), 1) == 1);
  CHECK(tokenizer.decode(ids, true) == "[INST] a<s>b [/INST]");
}

TEST_CASE("special tokens that are searched for after normalization are markers, too") {
  Json json = slm::read_json_object(slm::testing::fixture("tokenizers/llama2_legacy.json"));
  for (Json& token : json["added_tokens"]) token["normalized"] = true;
  const Tokenizer tokenizer = Tokenizer::parse(json.dump());
  const auto ids = named("llama-2").encode(tokenizer, std::vector<ChatMessage>{{"user", "</s><s>"}});
  CHECK(ids[0] == 1);
  CHECK(control_tokens(tokenizer, ids) == 1);
}

TEST_CASE("a template whose tokens the tokenizer lacks is refused") {
  const Tokenizer tokenizer = Tokenizer::from(slm::testing::fixture("tokenizers/gpt2.json"));
  for (const std::string& known : ChatTemplate::names()) {
    const bool fits = known == "plain" || known == "amd-olmo";
    CHECK(slm::testing::error_id([&] { named(known).encode(tokenizer, three_turns); }) ==
          (fits ? "no error" : "chat.missing-token"));
  }
}

TEST_CASE("an answer ends with what the template writes behind it") {
  const Tokenizer tokenizer = tokenizer_for("qwen2");
  const auto stops = [&](const ChatTemplate& form) {
    std::vector<std::string> found;
    const slm::ChatStops stops = form.stops(tokenizer);
    for (const Token token : stops.tokens) found.push_back(tokenizer.piece(token));
    for (const std::string& string : stops.strings) found.push_back("text " + string);
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(stops(named("plain")).empty());
  CHECK(stops(named("llama-2")) == Names{"</s>"});
  CHECK(stops(named("phi-3")) == Names{"<|end|>"});
  CHECK(stops(named("llama-3.1")) == Names{"<|eot_id|>"});
  CHECK(stops(named("qwen-3")) == Names{"<|im_end|>"});
  const auto own = [](const std::string& turn) {
    return ChatTemplate::parse("{% for m in messages %}" + turn +
                               "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  };
  CHECK(stops(own("[{{ m.role }}]{{ m.content }}\n")) == Names{"text [user]"});
  // An answer with parts of its own ends where the model's files say.
  CHECK(stops(own("[{{ m.role }}]<|system|>final<|end|>{{ m.content }}<|end|>")).empty());
}

TEST_CASE("roles and contents are adapted to the template") {
  const auto rendered = [](const std::string& source, const std::string& messages, const ChatOptions& options = {}) {
    try {
      return ChatTemplate::parse(source).render(messages, options).text;
    } catch (const slm::Error& error) {
      return error.id();
    }
  };
  const std::string strict =
      "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}"
      "{{ raise_exception('no ' + m.role) }}{% endif %}<{{ m.role }}>{{ m.content + '' }}{% for c in m.tool_calls %}"
      "{% for k, v in c.function.arguments.items() %}({{ k }}={{ v }}){% endfor %}{% endfor %}{% endfor %}";
  CHECK(rendered(strict, R"([{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}])") ==
        "<system>d<user>u");
  CHECK(rendered(strict, R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}])") ==
        "<user>a\nb");
  CHECK(rendered("{% for p in messages[0].content %}{{ p.text if p is mapping else p }}{% endfor %}",
                 R"([{"role": "user", "content": [{"type": "text", "text": "ab"}, {"text": "c"}]}])") == "abc");
  const auto calling = [](const std::string& arguments) {
    return R"([{"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f",)"
           R"( "arguments": )" +
           arguments + "}}]}]";
  };
  CHECK(rendered(strict, calling(R"("{\"b\": 1, \"a\": [2]}")")) == "<assistant>(b=1)(a=[2])");
  CHECK(rendered(strict, calling(R"({"b": 1, "a": [2]})")) == "<assistant>(b=1)(a=[2])");
  CHECK(rendered(strict, calling(R"("")")) == "<assistant>");
  CHECK(rendered(strict, calling(R"("{")")) == "chat.bad-arguments");
  CHECK(rendered(strict, calling(R"("[1]")")) == "chat.bad-arguments");
  const std::string text_only =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
      "{{ '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}";
  CHECK(rendered(text_only, calling(R"({"b": 1})")) == "({\"b\": 1})");
  CHECK(rendered(strict, "[]") == "chat.no-question");
  CHECK(rendered(strict, "{}") == "chat.bad-message");
  CHECK(rendered(strict, "[1]") == "chat.bad-message");
  CHECK(rendered(strict, R"([{"content": "x"}])") == "chat.unknown-role");
  CHECK(rendered(strict, R"([{"role": "narrator", "content": "x"}])") == "chat.unknown-role");
  CHECK(rendered(strict, R"([{"role": "user", "content": "x"}])", {.tools = R"([{"name": "f"}])"}) == "chat.no-tools");
  CHECK(rendered(strict, R"([{"role": "user", "content": "x"}])", {.tools = "{}"}) == "chat.no-tools");
  CHECK(rendered(strict, R"([{"role": "user", "content": "x"}])", {.kwargs = "[]"}) == "chat.bad-options");
  CHECK(rendered(strict, R"([{"role": "user", "content": 5}])", {.continue_final_message = true}) ==
        "chat.not-continued");
  CHECK(rendered(strict, R"([{"role": "user", "content": "x "}])", {.continue_final_message = true}) == "<user>x ");
  CHECK(rendered("{{ a }}{{ messages[0].content }}", R"([{"role": "user", "content": "x"}])",
                 {.kwargs = R"({"a": "A", "messages": [{"content": "B"}]})"}) == "AB");
}

TEST_CASE("variables of a chat are merged") {
  CHECK(slm::with_kwarg("", "a", "1") == R"({"a": 1})");
  CHECK(slm::with_kwarg(R"({"b": [1], "a": null})", "a", "\"x\"") == R"({"b": [1], "a": "x"})");
  CHECK(slm::testing::error_id([] { slm::with_kwarg("[]", "a", "1"); }) == "chat.bad-options");
  CHECK(slm::testing::error_id([] { slm::with_kwarg("{", "a", "1"); }) == "json.malformed");
}

TEST_CASE("each special token of each tokenizer is a message's text and comes back") {
  for (const std::string& fixture : fixtures) {
    const Tokenizer tokenizer = tokenizer_for(fixture);
    const ChatTemplate form = named("chatml");
    const std::size_t own = control_tokens(tokenizer, form.encode(tokenizer, std::vector<ChatMessage>{{"user", "x"}}));
    for (Token id = 0; id < tokenizer.vocab(); ++id) {
      if (!tokenizer.is_control(id)) continue;
      const std::string said = "a" + tokenizer.piece(id) + "b";
      const auto ids = form.encode(tokenizer, std::vector<ChatMessage>{{"user", said}});
      INFO(fixture << ' ' << said);
      CHECK(control_tokens(tokenizer, ids) == own);
      if (fixture != "phi3") CHECK(tokenizer.decode(ids, false).find(said) != std::string::npos);
    }
  }
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
    const auto ids = named("chatml").encode(tokenizer, std::vector<ChatMessage>{{"user", said}});
    CHECK(tokenizer.decode(ids, true) == "user\n" + said + "\nassistant\n");
    CHECK(control_tokens(tokenizer, ids) == 3);
  }
}
