// Decoding with each allocation failing in turn: the decoder runs the next request like a new one.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/model/load.hpp"
#include "support/allocations.hpp"
#include "support/temporary.hpp"
#include "support/tiny_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Creates decoders by `make` and makes every allocation fail, of creating one and of a request, and of a later
/// request.
template <class Make>
void check_decoding(Make make) {
  std::vector<Request> requests(2);
  requests[0].prompt = some_text(3, 70, least_shape.vocab);
  requests[0].sampling = {.max_new_tokens = 12};
  requests[0].sampling.temperature = 0.8f;
  requests[0].logprobs = {.raw = true, .sampled = true, .top = 2};
  requests[1].prompt = some_text(4, 5, least_shape.vocab);
  requests[1].sampling = {.max_new_tokens = 8};
  requests[1].sampling.temperature = 0;
  const auto answer = [](auto& decoder, const Request& request) {
    std::vector<Token> tokens;
    decoder.generate(request, [&](Token token) { tokens.push_back(token); });
    return tokens;
  };
  auto whole = make();
  const std::vector<std::vector<Token>> expected{answer(whole, requests[0]), answer(whole, requests[1])};
  for (const bool warm : {false, true}) {
    int wrong = 0;
    const long count = fail_each_allocation([&](Failure& failure) {
      std::optional<decltype(make())> decoder;
      if (warm) answer(decoder.emplace(make()), requests[1]);
      std::vector<Token> found;
      const auto serve = [&] {
        if (!decoder) decoder.emplace(make());
        found = answer(*decoder, requests[0]);
      };
      if (failure.spares(serve)) wrong += found != expected[0];
      if (!decoder) decoder.emplace(make());
      for (std::size_t i = 0; i < 2; ++i) wrong += answer(*decoder, requests[i]) != expected[i];
    });
    CHECK(wrong == 0);
    CHECK(count > 10);
  }
}

struct Pair {
  TemporaryFolder folder;
  AnyModel target = load(write_least_model(folder.path() / "target", 1), backend::Cpu(1));
  AnyModel draft = load(write_least_model(folder.path() / "draft", 2), backend::Cpu(1));
};

}  // namespace

TEST_CASE("plain decoding runs the next request after any failing allocation") {
  const Pair pair;
  check_decoding([&] { return SpeculativeDecoder(Drafter{}, pair.target); });
}

TEST_CASE("a decoder with a draft model runs the next request after any failing allocation") {
  const Pair pair;
  check_decoding([&] { return SpeculativeDecoder(pair.draft, pair.target, {.draft_tokens = 3}); });
  check_decoding([&] { return SpeculativeDecoder(pair.draft, pair.target, {.draft_tokens = 3}, rule::Block{}); });
}

TEST_CASE("a decoder with prompt lookup runs the next request after any failing allocation") {
  const Pair pair;
  check_decoding([&] { return SpeculativeDecoder(Lookup{}, pair.target, {.draft_tokens = 4}); });
}

TEST_CASE("overlapped drafting runs the next request after any failing allocation of either thread") {
  const Pair pair;
  const Request request{.prompt = some_text(3, 20, least_shape.vocab), .sampling = {.max_new_tokens = 8}};
  const auto answer = [&](auto& decoder) {
    std::vector<Token> tokens;
    decoder.generate(request, [&](Token token) { tokens.push_back(token); });
    return tokens;
  };
  const auto make = [&] { return SpeculativeDecoder(pair.draft, pair.target, {.draft_tokens = 3, .overlap = true}); };
  auto whole = make();
  const std::vector<Token> expected = answer(whole);
  for (const Failing whose : {Failing::here, Failing::elsewhere}) {
    int wrong = 0;
    fail_each_allocation(
        [&](Failure& failure) {
          auto decoder = make();
          std::vector<Token> found;
          if (failure.spares([&] { found = answer(decoder); })) wrong += found != expected;
          wrong += answer(decoder) != expected;
        },
        whose);
    CHECK(wrong == 0);
  }
}
