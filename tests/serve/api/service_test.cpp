// The server's engine during faults of its device.
#include "api/service.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "support/toy_models.hpp"

using slm::testing::ToyModel;
using slm::testing::Watched;

namespace {

template <class Condition>
void wait_until(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The whole answer of a short text.
int tokens_of(serve::Service& service) {
  slm::Answer answer =
      service.submit({.prompt = {1, 2}, .sampling = {.max_new_tokens = 3, .ignore_end_tokens = true}}, {}, [] {});
  int count = 0;
  while (answer.next()) ++count;
  return count;
}

}  // namespace

TEST_CASE("a server is unhealthy from a fault of its device until a step succeeds") {
  std::atomic<bool> broken{false};
  std::atomic<int> steps{0};
  const Watched device{ToyModel{{.vocab = 12}}, [&](const slm::Batch&) {
                         ++steps;
                         if (broken) throw slm::Error("gpu.failed", "the device does not answer", "Look at it");
                       }};
  const auto service = serve::make_service(slm::Drafter{}, device, {});
  CHECK(tokens_of(*service) == 3);
  CHECK(service->fault().empty());
  const int of_a_text = steps;

  broken = true;
  CHECK_THROWS_AS(tokens_of(*service), slm::Error);
  wait_until([&] { return service->fault() == "gpu.failed"; });
  SECTION("a request shows the recovery") {
    broken = false;
    CHECK(tokens_of(*service) == 3);
    CHECK(service->fault().empty());
  }
  SECTION("without requests, a health check shows the recovery") {
    wait_until([&] {
      CHECK(service->fault() == "gpu.failed");
      return steps > of_a_text + 4;  // after each attempt
    });
    broken = false;
    wait_until([&] { return service->fault().empty(); });
    wait_until([&] { return service->stats().running + service->stats().waiting == 0; });
    const int healed = steps;
    CHECK(service->fault().empty());
    CHECK(tokens_of(*service) == 3);
    CHECK(steps == healed + of_a_text);
  }
}

TEST_CASE("an exception that is not an slm::Error is a fault of the engine") {
  const Watched device{ToyModel{{.vocab = 12}}, [](const slm::Batch&) { throw std::runtime_error("unforeseen"); }};
  const auto service = serve::make_service(slm::Drafter{}, device, {});
  CHECK_THROWS_AS(tokens_of(*service), std::runtime_error);
  wait_until([&] { return service->fault() == "serve.engine-fault"; });
}
