// The constraint of answers that may have calls: free text, calls that fit their tools, and returns to earlier places.
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "api/auto_calls.hpp"
#include "serve/api/calling_server.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/forced_text.hpp"
#include "support/toy_models.hpp"

using serve::test::call_text;
using serve::test::CallingServer;
using serve::test::two_tools;
using slm::testing::ToyModel;

namespace {

slm::ConstraintRef constraint_of(CallingServer& server, const std::string& members) {
  server.service->asked.clear();
  server.begin(members);
  REQUIRE(server.service->asked.size() == 1);
  return server.service->asked.back().request.constraint;
}

using Bits = std::vector<std::uint64_t>;

Bits mask_of(const slm::ConstraintState& state, const slm::OutputConstraint& constraint) {
  Bits bits((constraint.vocab() + 63) / 64);
  state.mask(bits);
  return bits;
}

bool has(const Bits& bits, slm::Token token) {
  const auto id = static_cast<std::size_t>(token);
  return (bits[id / 64] >> id % 64 & 1) != 0;
}

std::size_t count_of(const Bits& bits, std::size_t vocab) {
  std::size_t count = 0;
  for (std::size_t id = 0; id < vocab; ++id) count += has(bits, static_cast<slm::Token>(id)) ? 1 : 0;
  return count;
}

/// Whether the answer may be the text. Each token must be in the mask before it, and only then does it follow.
bool accepts(CallingServer& server, const std::string& members, const std::string& text) {
  const slm::ConstraintRef constraint = constraint_of(server, members);
  REQUIRE(constraint != nullptr);
  const auto state = constraint->begin();
  for (const char byte : text) {
    const auto tokens = server.model.tokenizer.encode(std::string(1, byte), false);
    REQUIRE(tokens.size() == 1);
    const bool is_permitted = has(mask_of(*state, *constraint), tokens.front());
    REQUIRE(state->advance(tokens.front()) == is_permitted);
    if (!is_permitted) return false;
  }
  return state->may_end() && !state->must_end();
}

const std::string city = R"({"city": "x", "days": 2})";

}  // namespace

TEST_CASE("text is free, and a call fits its tool from its opening tag on") {
  CallingServer server;
  const std::string members = two_tools();
  for (const std::string& text : {std::string(), std::string("yes {\"a\": <tool_cal <tool> </tool_call>"),
                                  call_text("now", "{}"), "so: " + call_text("get_weather", city),
                                  call_text("get_weather", city) + "\n" + call_text("now", "{}") + " end",
                                  "<<tool_call><tool_call>" + call_text("now", "{}").substr(11)}) {
    CAPTURE(text);
    CHECK(accepts(server, members, text) == (text.find("<tool_call><tool_call>") == text.npos));
  }
  for (const std::string& text :
       {std::string("a <tool_call>"), std::string("<tool_call>x"), call_text("other", city),
        call_text("get_weather", R"({"days": 2})"), call_text("get_weather", R"({"city": 5})"),
        call_text("now", R"({"a": 1})"), call_text("now", "{}") + call_text("now", "[]")}) {
    CAPTURE(text);
    CHECK_FALSE(accepts(server, members, text));
  }
  CHECK(constraint_of(server, two_tools(R"(, "tool_choice": "none")")) == nullptr);
  CHECK(constraint_of(server, R"("temperature": 1)") == nullptr);
  CHECK(constraint_of(server, members) == constraint_of(server, members));  // compiled once
}

TEST_CASE("outside of calls only tokens that pass the opening tag are forbidden") {
  CallingServer server;
  const slm::ConstraintRef constraint = constraint_of(server, two_tools());
  const auto state = constraint->begin();
  const std::size_t vocab = constraint->vocab();
  CHECK(count_of(mask_of(*state, *constraint), vocab) == vocab);
  CHECK(state->advance(0));  // a token without text
  const std::string opening = "<tool_call>";
  for (const char byte : opening.substr(0, opening.size() - 1)) {
    CHECK(state->advance(server.model.tokenizer.encode(std::string(1, byte), false).front()));
  }
  const Bits bits = mask_of(*state, *constraint);
  for (std::size_t id = 0; id < vocab; ++id) {
    const auto token = static_cast<slm::Token>(id);
    const bool is_text = server.model.tokenizer.is_token(token) && !server.model.tokenizer.is_special(token);
    const std::string bytes = is_text ? server.model.tokenizer.bytes(token) : std::string();
    CHECK(has(bits, token) == !(bytes.starts_with('>') && bytes.size() > 1));
  }
}

TEST_CASE("no call begins inside of reasoning") {
  CallingServer begun("<think>\n");
  const std::string members = two_tools();
  CHECK(accepts(begun, members, "a <tool_call> b\n</think>\n\n" + call_text("now", "{}")));
  CHECK_FALSE(accepts(begun, members, "a\n</think>\n\n<tool_call>x"));
  CallingServer possible("{% if enable_thinking == false %}<think>\n\n</think>\n\n{% endif %}");
  CHECK(accepts(possible, members, "<think>\na <tool_call> b\n</think>\n\n" + call_text("now", "{}")));
  CHECK_FALSE(accepts(possible, members, "<think>\na\n</think>\n\n<tool_call>x"));
  CHECK_FALSE(accepts(possible, members, "<tool_call>x"));
}

TEST_CASE("a schema that no grammar supports permits any object") {
  CallingServer server;
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}])";
  CHECK(accepts(server, tools, call_text("f", R"({"a": [1]})")));
  CHECK_FALSE(accepts(server, tools, call_text("f", "5")));
}

TEST_CASE("a state that returns to an earlier token is that of the remaining tokens") {
  CallingServer server("{% if enable_thinking == false %}<think>\n\n</think>\n\n{% endif %}");
  const slm::ConstraintRef constraint = constraint_of(server, two_tools());
  const std::string text =
      "<think>\n<tool_call>\n</think>\n\nso " + call_text("now", "{}") + " and " + call_text("get_weather", city) + "!";
  std::vector<slm::Token> all;
  for (const char byte : text) all.push_back(server.model.tokenizer.encode(std::string(1, byte), false).front());
  const auto replayed = [&](std::size_t length) {
    auto state = constraint->begin();
    for (std::size_t i = 0; i < length; ++i) REQUIRE(state->advance(all[i]));
    return state;
  };
  std::mt19937 random(4);
  const auto state = constraint->begin();
  std::size_t length = 0;
  for (int round = 0; round < 60; ++round) {
    const std::size_t to = random() % (all.size() + 1);
    if (to < length) state->truncate(to);
    for (std::size_t i = length; i < to; ++i) REQUIRE(state->advance(all[i]));
    length = to;
    const auto other = replayed(length);
    CHECK(mask_of(*state, *constraint) == mask_of(*other, *constraint));
    CHECK(state->may_end() == other->may_end());
    std::vector<slm::Token> forced, expected;
    state->forced(4, forced);
    other->forced(4, expected);
    CHECK(forced == expected);
  }
}

TEST_CASE("calls are the same with and without a draft, and beside other answers") {
  CallingServer server;
  slm::Request request{.prompt = {5, 6, 7}, .sampling = {.max_new_tokens = 160, .temperature = 1, .seed = 3}};
  request.constraint = constraint_of(server, two_tools());
  request.sampling.ignore_end_tokens = true;
  std::vector<slm::Token> opening;
  for (const char byte : std::string_view("<tool_call>")) {
    opening.push_back(server.model.tokenizer.encode(std::string(1, byte), false).front());
  }
  // Twice, the model writes the opening tag.
  request.sampling.adjust_logits = [opening](std::span<const slm::Token> said, std::span<float> logits) {
    for (const std::size_t begin : {std::size_t{8}, std::size_t{110}}) {
      if (said.size() < begin || said.size() >= begin + opening.size()) continue;
      logits[static_cast<std::size_t>(opening[said.size() - begin])] += 1000;
    }
  };
  const auto texts_of = [&](slm::Drafter draft, int requests) {
    const auto service = serve::make_service(std::move(draft), ToyModel{{.vocab = 2048, .seed = 1}}, {});
    std::vector<slm::Answer> answers;
    for (int i = 0; i < requests; ++i) answers.push_back(service->submit(request, {}, [] {}));
    std::vector<std::string> texts;
    for (slm::Answer& answer : answers) {
      std::vector<slm::Token> tokens;
      while (const auto token = answer.next()) tokens.push_back(token->token);
      texts.push_back(server.model.tokenizer.decode(tokens, false));
    }
    return texts;
  };
  const std::string alone = texts_of(slm::Drafter{}, 1).front();
  CAPTURE(alone);
  const std::size_t begin = alone.find("<tool_call>\n{\"name\": \"");
  CHECK(begin != alone.npos);
  CHECK(texts_of(slm::Drafter{slm::ForcedText{}, ToyModel{{.vocab = 2048, .seed = 1}}}, 1).front() == alone);
  for (const std::string& text : texts_of(slm::Drafter{slm::ForcedText{}, ToyModel{{.vocab = 2048, .seed = 2}}}, 3)) {
    CHECK(text == alone);
  }
}
