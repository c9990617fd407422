// An engine between threads: clients submit, read and cancel while one thread computes.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/engine/engine.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<Request> requests_of(std::uint64_t client) {
  std::vector<Request> requests(12);
  for (std::uint64_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    auto draw = [&, salt = std::uint64_t{0}](std::uint64_t n) mutable {
      return mix(client * 7919 + i * 131 + ++salt) % n;
    };
    for (std::uint64_t left = 1 + draw(60); left > 0; --left) request.prompt.push_back(static_cast<Token>(draw(12)));
    request.sampling = {.max_new_tokens = static_cast<int>(draw(40)), .temperature = 0.9f, .seed = draw(100)};
  }
  return requests;
}

}  // namespace

TEST_CASE("requests come from many threads while one thread runs the engine") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  ToyOptions other = options;
  other.other_share = 0.3;
  std::atomic<int> woken = 0, crowded = 0;  // the engine's thread may still wake a reader that has seen the end
  Engine engine{ToyModel{other}, ToyModel{options}, {.max_running = 5}};
  std::jthread runner([&](std::stop_token stop) { engine.run(stop); });
  std::vector<std::vector<std::vector<Token>>> found(4);
  {
    std::vector<std::jthread> clients;
    for (std::size_t client = 0; client < found.size(); ++client) {
      clients.emplace_back([&, client] {
        for (const Request& request : requests_of(client)) {
          Answer answer = engine.submit(request, {}, [&] { ++woken; });
          std::vector<Token> text;
          while (const auto token = answer.next()) text.push_back(token->token);
          found[client].push_back(std::move(text));
          if (client == 0) Answer{engine.submit(request)}.cancel();
          if (engine.stats().running > 5) ++crowded;
        }
      });
    }
  }
  for (std::size_t client = 0; client < found.size(); ++client) {
    const auto requests = requests_of(client);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      AutoregressiveDecoder decoder{ToyModel{options}};
      std::vector<Token> expected;
      decoder.generate(requests[i], [&](Token token) { expected.push_back(token); });
      CHECK(found[client][i] == expected);
    }
  }
  CHECK(woken > 0);
  CHECK(crowded == 0);
}
