// Constrained answers on emulated lanes: the device chooses by masks what the host chooses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/core/error.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/decode/lookup.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/engine/engine_definition.hpp"
#include "slm/grammar.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/model/model.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/counting_lanes.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"
#include "support/toy_constraints.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr ModelConfig shape{
    .layers = 2, .hidden = 64, .ffn = 64, .heads = 2, .kv_heads = 1, .head_dim = 32, .vocab = 101};

template <class Device>
Model<Dynamic, Fp32, Device> load_on(const TemporaryFolder& folder, Device device) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  const Dynamic config{checkpoint->config()};
  return {config, std::move(checkpoint), std::move(device)};
}

/// Vocabulary, grammars and requests for the shape.
struct Setup {
  std::vector<std::string> pieces = toy_pieces(3);
  Token end = static_cast<Token>(pieces.size() - 1);
  TokenTrie tokens{pieces};
  Grammar grammar = Grammar::json();

  explicit Setup(std::uint64_t number) {
    ToyRandom random{number};
    grammar = random_grammar(random);
  }
  Request request(std::uint64_t number, bool constrained = true) const {
    Request request{.prompt = {1, 5, 9, static_cast<Token>(number % 90)},
                    .sampling = {.max_new_tokens = 16,
                                 .temperature = number % 2 == 0 ? 0.0f : 0.9f,
                                 .top_k = std::vector<int>{0, 3, 40}[number % 3],
                                 .top_p = number % 4 == 1 ? 0.8f : 1.0f,
                                 .seed = number,
                                 .stop_tokens = {end}}};
    if (constrained) request.constraint = constrain(grammar, tokens);
    return request;
  }
};

struct Answered {
  std::vector<Token> text;
  FinishReason reason;
  bool operator==(const Answered&) const = default;
};

template <class Decoder>
Answered answered(Decoder& decoder, const Request& request) {
  Answered answer;
  answer.reason = decoder.generate(request, [&](Token token) { answer.text.push_back(token); }).finish_reason;
  return answer;
}

/// The text by the definition: forbidden tokens are minus infinity in the logits, which the host edits.
std::vector<Token> naive_text(const AnyModel& model, const Setup& setup, Request request) {
  const TriedConstraint tried(setup.grammar, setup.pieces, setup.end);
  const std::size_t prompt = request.prompt.size();
  request.constraint = nullptr;
  request.sampling.adjust_logits = [&](std::span<const Token> prefix, std::span<float> logits) {
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const bool known = id < setup.pieces.size() && tried.permits(prefix.subspan(prompt), static_cast<Token>(id));
      if (!known) logits[id] = -std::numeric_limits<float>::infinity();
    }
  };
  AutoregressiveDecoder decoder{model};
  return answered(decoder, request).text;
}

template <class Device>
void check_texts(std::uint64_t from, std::uint64_t to) {
  const TemporaryFolder folder, other;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  write_random_checkpoint<float>(other.path(), shape, 4);
  const AnyModel target = load_on(folder, Device{}), draft = load_on(other, Device{1});
  int masked = 0;
  for (std::uint64_t number = from; number < to; ++number) {
    CAPTURE(number);
    const Setup setup(number);
    const Request request = setup.request(number);
    AutoregressiveDecoder plain{target};
    Request by_host = request;
    by_host.logprobs = {.raw = true};
    const Answered expected = answered(plain, by_host);
    REQUIRE(answered(plain, request) == expected);
    std::vector<Token> naive = naive_text(target, setup, request);
    if (expected.reason == FinishReason::complete) naive.resize(std::min(naive.size(), expected.text.size()));
    REQUIRE(naive == expected.text);
    const Speculation speculation{.draft_tokens = 1 + static_cast<int>(number % 4), .overlap = number % 3 == 0};
    SpeculativeDecoder drafted{draft, target, speculation}, of_itself{target, target, speculation};
    SpeculativeDecoder forced{Drafter{ForcedText{}, Lookup{}, draft}, target, speculation};
    REQUIRE(answered(drafted, request) == expected);
    REQUIRE(answered(of_itself, request) == expected);
    REQUIRE(answered(forced, request) == expected);
    masked += !(answered(plain, setup.request(number, false)) == expected);  // without the mask
  }
  CHECK(masked == static_cast<int>(to - from));
}

}  // namespace

TEST_CASE("constrained answers on 32 lanes are those of the host's choice, with any drafter") {
  check_texts<backend::Lanes32>(0, 4);
}
TEST_CASE("constrained answers on 64 lanes are those of the host's choice, with any drafter") {
  check_texts<backend::Lanes64>(12, 14);
}
TEST_CASE("many constrained answers on lanes are those of the host's choice, with any drafter", "[long]") {
  check_texts<backend::Lanes32>(4, 12);
  check_texts<backend::Lanes64>(14, 20);
}

TEST_CASE("constrained and free requests of one engine have the answers that they have alone, on lanes") {
  const TemporaryFolder folder, other;
  write_random_checkpoint<float>(folder.path(), shape, 5);
  write_random_checkpoint<float>(other.path(), shape, 6);
  const AnyModel target = load_on(folder, backend::Lanes32{}), draft = load_on(other, backend::Lanes32{1});
  const Setup setup(1), second(4);
  std::vector<Request> requests;
  for (std::uint64_t number = 0; number < 7; ++number)
    requests.push_back((number % 2 == 0 ? setup : second).request(number, number % 3 != 0));
  AutoregressiveDecoder alone{target};
  std::vector<Answered> expected;
  for (const Request& request : requests) expected.push_back(answered(alone, request));
  for (const bool drafts : {false, true}) {
    Engine engine{drafts ? Drafter{ForcedText{}, draft} : Drafter{}, target, {.max_running = 5}};
    std::vector<Answer> answers;
    for (const Request& request : requests) answers.push_back(engine.submit(request));
    engine.run();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      CAPTURE(drafts, i);
      Answered found;
      while (const auto token = answers[i].try_next()) found.text.push_back(token->token);
      found.reason = answers[i].stats().finish_reason;
      REQUIRE(found == expected[i]);
    }
  }
}

TEST_CASE("a mask that forbids everything is the same error on the device as on the host") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  const AnyModel model = load_on(folder, backend::Lanes32{});
  Setup setup(0);
  setup.grammar = Grammar::regex("a{1,5}x");  // no token has an x
  setup.tokens = TokenTrie(setup.pieces);
  for (std::uint64_t number = 0; number < 4; ++number) {
    Request request = setup.request(number);
    AutoregressiveDecoder plain{model};
    SpeculativeDecoder speculative{model, model, {.draft_tokens = 3, .overlap = number % 2 == 0}};
    const auto error_of = [&](auto& decoder) -> std::string {
      try {
        decoder.generate(request, [](Token) {});
      } catch (const Error& error) {
        return error.what();
      }
      return "no error";
    };
    const std::string by_device = error_of(plain), of_speculation = error_of(speculative);
    request.logprobs = {.raw = true};
    CHECK(by_device == error_of(plain));
    CHECK(of_speculation == by_device);
    CHECK_THAT(by_device, Catch::Contains("structured.no-token"));
  }
}

TEST_CASE("a step with masks is one more copy, and other steps have the copies and launches of before") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  using Counting = backend::Gpu<CountingLanes>;
  Counting device;
  const auto model = load_on(folder, device);
  Sequence first = model.sequence(), second = model.sequence();
  detail::paged(first).make_writable(0, 40);
  detail::paged(second).make_writable(0, 40);
  const std::vector<std::uint64_t> mask{0xf0, 1};
  const Draw draw = draw_of({.temperature = 0}, shape.vocab);
  Token token = 7;
  Batch batch;
  const auto step = [&](RowResult result, std::vector<TokenMask> of_first, std::vector<TokenMask> of_second = {}) {
    batch.clear();
    int calls = 0;
    batch.add(first, {&token, 1}, {.result = result, .draw = draw, .masks = of_first});
    batch.add(second, {&token, 1}, {.result = result, .draw = draw, .masks = of_second});
    batch.before_masks([&] { ++calls; });
    const CountingLanes::Counts before = device.runtime().counts();
    model.forward(batch);
    const CountingLanes::Counts& now = device.runtime().counts();
    CHECK(now.elsewhere == before.elsewhere);
    CHECK(calls == (of_first.empty() ? 0 : 1));
    return std::vector<int>{now.launches - before.launches, now.replays - before.replays,
                            now.copies_in - before.copies_in, now.waits - before.waits};
  };
  const int layers = 1 + 5 * shape.layers;
  CHECK(step(RowResult::choice, {}) == std::vector{layers + 2, 0, 1, 1});  // runs
  CHECK(step(RowResult::choice, {}) == std::vector{layers + 2, 1, 1, 1});  // is recorded
  CHECK(step(RowResult::choice, {}) == std::vector{0, 1, 1, 1});
  step(RowResult::logits, {});
  step(RowResult::logits, {});
  step(RowResult::choice, {mask});                                    // allocates
  CHECK(step(RowResult::choice, {mask}) == std::vector{3, 1, 2, 1});  // product, masks, choice
  CHECK(batch.choices(0)[0] >= 4);
  CHECK((batch.choices(0)[0] < 8 || batch.choices(0)[0] == 64));
  const int allocations = device.runtime().counts().allocations;
  CHECK(step(RowResult::choice, {mask}, {mask}) == std::vector{3, 1, 2, 1});
  CHECK(step(RowResult::choice, {TokenMask{}}, {TokenMask{}}) == std::vector{3, 1, 2, 1});
  CHECK(step(RowResult::choice, {}) == std::vector{0, 1, 1, 1});
  CHECK(device.runtime().counts().allocations == allocations);

  const auto add = [&](const ResultSpec& spec) {
    batch.clear();
    batch.add(first, {&token, 1}, spec);
    model.forward(batch);
  };
  const std::vector<TokenMask> one{mask}, two{mask, mask};
  CHECK_THROWS_WITH(add({.result = RowResult::logits, .masks = one}), Catch::Contains("batch.masks"));
  CHECK_THROWS_WITH(add({.result = RowResult::choice, .masks = two}), Catch::Contains("batch.masks"));
  CHECK_THROWS_WITH(add({.result = RowResult::choice, .chain = 2, .masks = one}), Catch::Contains("batch.masks"));
}
