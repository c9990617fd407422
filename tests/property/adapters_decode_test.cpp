// Requests with adapters: their text equals plain greedy decoding with the adapter, with a base or an adapted draft
// model, one at a time, in a batch, or in an engine.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

AdapterRef adapter_of(const AnyModel& model, const Checkpoint& checkpoint, std::uint64_t seed) {
  const TemporaryFolder folder;
  write_random_adapter(folder.path(), checkpoint, {.seed = seed, .size = 0.4f, .type = DType::bf16});
  return load_adapter(folder.path(), model);
}

/// Target and draft of the embedded pair, two adapters of the target and one of the draft.
struct Pair {
  Checkpoint target_files{demo_pair("target")}, draft_files{demo_pair("draft")};
  AnyModel target = load(target_files.folder(), backend::Cpu{2});
  AnyModel draft = load(draft_files.folder(), backend::Cpu{2});
  AdapterRef first = adapter_of(target, target_files, 1), second = adapter_of(target, target_files, 2);
  AdapterRef of_draft = adapter_of(draft, draft_files, 3);

  /// Requests with the first adapter, the second and none, alternating.
  std::vector<Request> requests(int count) const {
    std::vector<Request> all;
    for (int i = 0; i < count; ++i) {
      all.push_back({.prompt = some_text(static_cast<std::uint64_t>(i / 3), 80, target.info().vocab),
                     .sampling = {.max_new_tokens = 24, .temperature = i < 6 ? 0.0f : 0.9f},
                     .adapter = i % 3 == 0   ? first
                                : i % 3 == 1 ? second
                                             : nullptr});
      if (i % 2 == 0) all.back().draft_adapter = of_draft;
    }
    return all;
  }

  std::vector<Token> plain(const Request& request) const {
    AutoregressiveDecoder decoder{target};
    std::vector<Token> tokens;
    decoder.generate(request, [&](Token token) {
      tokens.push_back(token);
      return true;
    });
    return tokens;
  }
};

}  // namespace

TEST_CASE("speculation with an adapted target gives the text of plain decoding with the adapter") {
  const Pair pair;
  const auto requests = pair.requests(9);
  std::vector<std::vector<Token>> expected;
  for (const Request& request : requests) expected.push_back(pair.plain(request));
  CHECK(expected[0] != expected[1]);
  CHECK(expected[0] != expected[2]);
  CHECK(expected[1] != expected[2]);

  SpeculativeDecoder decoder{pair.draft, pair.target, {.draft_tokens = 4}};
  for (std::size_t i = 0; i < requests.size(); ++i) {  // one after another, in the same sequences
    std::vector<Token> tokens;
    const Stats stats = decoder.generate(requests[i], [&](Token token) {
      tokens.push_back(token);
      return true;
    });
    CHECK(tokens == expected[i]);
    CHECK(stats.drafted > 0);
    CHECK(stats.draft_faults == 0);
  }
  std::vector<std::vector<Token>> together(requests.size());
  decoder.generate(requests, [&](std::size_t i, const GeneratedToken& next) {
    together[i].push_back(next.token);
    return true;
  });
  CHECK(together == expected);
}

TEST_CASE("an engine answers requests with and without adapters as if each were alone") {
  const Pair pair;
  const auto requests = pair.requests(12);
  for (const std::size_t memory : {std::size_t{0}, pair.target.pool().bytes_of(400)}) {
    Engine engine{pair.draft, pair.target, {.cache_memory = memory}};
    for (int again = 0; again < 2; ++again) {  // the second time, texts have cached prefixes
      std::vector<Answer> answers;
      for (const Request& request : requests) answers.push_back(engine.submit(request));
      engine.run();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        std::vector<Token> tokens;
        while (const auto token = answers[i].next()) tokens.push_back(token->token);
        CAPTURE(memory, again, i);
        CHECK(tokens == pair.plain(requests[i]));
      }
    }
    CHECK((engine.stats().prefixes.hits > 0) == (memory == 0));  // the small memory keeps no page
  }
}

TEST_CASE("an adapter of another target fails the request, and of another draft only disables its drafting") {
  const Pair pair;
  Request request = pair.requests(1).front();
  SpeculativeDecoder decoder{pair.draft, pair.target, {.draft_tokens = 4}};
  const auto generate = [&] { return decoder.generate(request, [](Token) { return true; }); };
  request.draft_adapter = pair.first;
  const Stats stats = generate();
  CHECK(stats.emitted == 24);
  CHECK(stats.disabled_reason.find("adapter.other-model") != std::string::npos);
  request.adapter = pair.of_draft;
  CHECK(error_id(generate) == "adapter.other-model");
  Engine engine{pair.draft, pair.target, {}};
  CHECK(error_id([&] { engine.submit(request); }) == "adapter.other-model");
}
