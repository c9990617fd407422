// Constrained requests of an engine: each has the answer that it has alone, beside any others and after preemption.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/engine/engine.hpp"
#include "slm/grammar.hpp"
#include "support/toy_constraints.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<Token> tokens_of(Answer& answer) {
  std::vector<Token> tokens;
  while (const auto token = answer.try_next()) tokens.push_back(token->token);
  return tokens;
}

/// Some have a constraint, and some of these share a grammar.
std::vector<Request> some_requests(std::uint64_t number, const std::vector<std::string>& pieces) {
  ToyRandom random{number};
  const TokenTrie tokens(pieces);
  std::vector<ConstraintRef> constraints{nullptr};
  for (int i = 0; i < 3; ++i) constraints.push_back(constrain(random_grammar(random), tokens));
  std::vector<Request> requests(3 + random.pick(9));
  for (Request& request : requests) {
    request.prompt =
        some_text(random.pick(1000), 1 + static_cast<int>(random.pick(9)), static_cast<int>(pieces.size()));
    request.sampling = {.max_new_tokens = 1 + static_cast<int>(random.pick(20)),
                        .temperature = random.pick(2) ? 0.9f : 0.0f,
                        .top_k = static_cast<int>(random.pick(2) * 4),
                        .seed = random.pick(100)};
    request.constraint = constraints[random.pick(4)];
  }
  return requests;
}

}  // namespace

TEST_CASE("constrained: answers of an engine are those of the requests alone, also after preemption") {
  std::int64_t preemptions = 0, forced = 0;
  for (std::uint64_t number = 0; number < 150; ++number) {
    const std::vector<std::string> pieces = toy_pieces(number % 20);
    const ToyOptions options{.vocab = static_cast<int>(pieces.size()),
                             .seed = 1 + number,
                             .end_tokens = {static_cast<Token>(pieces.size() - 1)}};
    ToyOptions other = options;
    other.other_share = 0.3;
    const std::vector<Request> requests = some_requests(number, pieces);
    const auto calls = std::make_shared<std::uint64_t>(0);
    const Watched<ToyModel> target{ToyModel{options}, [calls](const Batch& batch) {
                                     if (mix(++*calls) % 5 > 0 || batch.items().size() < 2) return;
                                     throw Error("cache.full", "no page is left", "Wait");
                                   }};
    const auto check = [&](Drafter draft) {
      Engine engine{std::move(draft), target, {.max_running = 1 + number % 6}};
      std::vector<Answer> answers;
      for (const Request& request : requests) answers.push_back(engine.submit(request));
      engine.run();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(number, i);
        AutoregressiveDecoder alone{ToyModel{options}};
        std::vector<Token> expected;
        const Stats stats = alone.generate(requests[i], [&](Token token) { expected.push_back(token); });
        REQUIRE(tokens_of(answers[i]) == expected);
        REQUIRE(answers[i].stats().finish_reason == stats.finish_reason);
        forced += answers[i].stats().forced;
      }
      preemptions += engine.stats().preemptions;
    };
    check({});
    check(ToyModel{other});
    check(Drafter{ForcedText{}, Lookup{}, ToyModel{other}});
  }
  CHECK(preemptions > 0);
  CHECK(forced > 0);
}

TEST_CASE("constrained: a grammar without a token for its bytes ends only its request") {
  const std::vector<std::string> pieces = toy_pieces(1);
  const ToyOptions options{.vocab = static_cast<int>(pieces.size()), .seed = 3};
  Engine engine{Drafter{}, ToyModel{options}};
  Request request{.prompt = {1, 2}, .sampling = {.max_new_tokens = 9, .temperature = 0}};
  Answer plain = engine.submit(request);
  request.constraint = constrain(Grammar::regex("abx"), TokenTrie(pieces));
  Answer stuck = engine.submit(request);
  request.constraint = constrain(Grammar::regex("ab"), TokenTrie(pieces));
  Answer whole = engine.submit(request);
  engine.run();
  CHECK(tokens_of(plain).size() == 9);
  CHECK_THROWS_WITH(tokens_of(stuck), Catch::Contains("structured.no-token"));
  tokens_of(whole);
  CHECK(whole.stats().finish_reason == FinishReason::complete);
}
