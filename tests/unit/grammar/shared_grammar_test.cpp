// Threads that share a grammar and a vocabulary: constraints of several threads, and masks that an engine computes
// beside the model's step. Also built with the thread sanitizer.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "slm/decode/forced_text.hpp"
#include "slm/engine/engine.hpp"
#include "slm/grammar.hpp"
#include "support/toy_constraints.hpp"
#include "support/toy_models.hpp"
#include "tests/support/structure.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr const char* schema = R"({"type": "array", "maxItems": 6, "items": {"anyOf": [
  {"type": "object", "properties": {"a": {"type": "boolean"}, "ab": {"enum": [1, 11, "b"]}}, "required": ["ab"]},
  {"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 1}]}})";

template <class Work>
void in_threads(int count, Work work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

/// The masks along a random text, chosen by the seed.
std::vector<std::vector<std::uint64_t>> masks_along(const Grammar& grammar, const TokenTrie& tokens,
                                                    std::uint64_t seed) {
  ToyRandom random{seed};
  Constraint constraint(grammar);
  std::vector<std::vector<std::uint64_t>> masks;
  for (int step = 0; step < 25; ++step) {
    masks.push_back(mask_of(constraint, tokens));
    std::vector<Token> allowed;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (allows(masks.back(), id)) allowed.push_back(static_cast<Token>(id));
    }
    if (allowed.empty()) break;
    constraint.advance(tokens.bytes(allowed[random.pick(allowed.size())]));
    if (step % 7 == 6) constraint.truncate(constraint.length() / 2);
  }
  return masks;
}

std::vector<Token> tokens_of(Answer& answer) {
  std::vector<Token> tokens;
  while (const auto token = answer.try_next()) tokens.push_back(token->token);
  return tokens;
}

}  // namespace

TEST_CASE("constraints of several threads share a grammar and a vocabulary") {
  const Grammar grammar = Grammar::json_schema(schema);
  const TokenTrie tokens(toy_pieces(3));
  std::atomic<int> wrong = 0;
  in_threads(4, [&](int thread) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const std::uint64_t own = seed + static_cast<std::uint64_t>(thread % 2) * 4;  // some texts are in two threads
      const Grammar alone = Grammar::json_schema(schema);
      wrong += masks_along(grammar, tokens, own) != masks_along(alone, tokens, own);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("engines of several threads share a constraint, and compute its masks beside the model's step") {
  const std::vector<std::string> pieces = toy_pieces(5);
  const ToyOptions options{
      .vocab = static_cast<int>(pieces.size()), .seed = 4, .end_tokens = {static_cast<Token>(pieces.size() - 1)}};
  ToyOptions other = options;
  other.other_share = 0.3;
  const ConstraintRef constraint = constrain(Grammar::json_schema(schema), TokenTrie(pieces));
  const auto answers_of = [&](Drafter draft) {
    Engine engine{std::move(draft), ToyModel{options}};
    std::vector<Answer> answers;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      answers.push_back(engine.submit({.prompt = {1, 2},
                                       .sampling = {.max_new_tokens = 30, .temperature = 0.9f, .seed = seed},
                                       .constraint = constraint}));
    }
    engine.run();
    std::vector<std::vector<Token>> texts;
    for (Answer& answer : answers) texts.push_back(tokens_of(answer));
    return texts;
  };
  const auto expected = answers_of({});
  std::atomic<int> wrong = 0;
  in_threads(4, [&](int thread) {
    Drafter drafter;
    if (thread > 0) drafter.add(ForcedText{});
    if (thread > 1) drafter.add(ToyModel{other});
    wrong += answers_of(std::move(drafter)) != expected;
  });
  CHECK(wrong == 0);
}
