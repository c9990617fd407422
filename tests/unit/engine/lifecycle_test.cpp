// The states of an engine's requests: each transition, with devices, clients and memory that fail in every step.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slm/engine/engine.hpp"
#include "support/allocations.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

const ToyOptions toy{.vocab = 12, .seed = 3};

Request request_of(int tokens) { return {.prompt = {1, 2}, .sampling = {.max_new_tokens = tokens}}; }

/// How an answer ends when it is read to its end, within ten seconds.
std::string read(Answer answer) {
  auto reader = std::async(std::launch::async, [answer = std::move(answer)]() mutable -> std::string {
    try {
      while (answer.next()) continue;
    } catch (const std::exception&) {
      return "throws";
    }
    return "ends";
  });
  REQUIRE(reader.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  return reader.get();
}

using Toy = Engine<>;

}  // namespace

TEST_CASE("an engine that is destroyed cancels running and queued requests") {
  auto engine = std::make_unique<Toy>(Drafter{}, ToyModel{toy}, EngineOptions{.max_running = 1});
  Answer running = engine->submit(request_of(1000)), queued = engine->submit(request_of(1000));
  for (int i = 0; i < 3; ++i) engine->step();
  Answer coming = engine->submit(request_of(1000));
  auto waiting = std::async(std::launch::async, [queued] { return read(queued); });
  engine.reset();
  CHECK(waiting.get() == "ends");
  for (const Answer& answer : {running, queued, coming}) {
    CHECK(read(answer) == "ends");
    CHECK(answer.stats().finish_reason == FinishReason::cancelled);
  }
}

TEST_CASE("run(stop) cancels all requests, and the engine accepts none until it steps again") {
  Toy engine{Drafter{}, ToyModel{toy},
             EngineOptions{.max_unread = 4}};  // so that no answer is complete before the stop
  Answer queued = engine.submit(request_of(1000));
  {
    std::jthread runner([&](std::stop_token stop) { engine.run(stop); });
    REQUIRE(queued.next());
  }
  CHECK(read(queued) == "ends");
  CHECK(queued.stats().finish_reason == FinishReason::cancelled);
  CHECK_THROWS_WITH(engine.submit(request_of(2)), Catch::Contains("engine.stopped"));
  CHECK_FALSE(engine.step());
  Answer next = engine.submit(request_of(2));
  engine.run();
  CHECK(read(next) == "ends");
  CHECK(next.stats().finish_reason == FinishReason::length);
}

TEST_CASE("a device that fails in any step ends every request with its error, and the engine runs the next one") {
  // Each request takes five forward passes: one for the prompt, four for one token each.
  for (int bad = 0; bad < 15; ++bad) {
    const SpoiltModel model{toy, [bad](int call, std::span<float>) {
                              if (call == bad) throw Error("gpu.fault", "the device has failed", "Look at it");
                            }};
    Engine engine{Drafter{}, model, {.max_running = 1}};
    std::vector<Answer> answers;
    for (int i = 0; i < 3; ++i) answers.push_back(engine.submit(request_of(4)));
    const auto run = [&] { engine.run(); };
    CHECK_THROWS_WITH(run(), Catch::Contains("gpu.fault"));
    for (int i = 0; i < 3; ++i) {
      CHECK(read(answers[static_cast<std::size_t>(i)]) == (i < bad / 5 ? "ends" : "throws"));
    }
    CHECK(engine.stats().waiting + engine.stats().running == 0);
    Answer next = engine.submit(request_of(4));
    engine.run();
    CHECK(read(next) == "ends");
    CHECK(next.stats().emitted == 4);
  }
}

TEST_CASE("a request is cancelled when its last answer is destroyed, unless it is detached") {
  const ToyModel model{toy};
  Toy engine{Drafter{}, model};
  {
    const Answer answer = engine.submit(request_of(2000));
    const Answer copy = answer;
  }
  engine.run();
  CHECK(model.log()->forwards == 0);
  {
    const Answer first = engine.submit(request_of(2000));
    engine.step();
  }
  engine.run();
  CHECK(model.log()->forwards == 1);
  CHECK(engine.stats().finished_by[static_cast<std::size_t>(FinishReason::cancelled)] == 2);
  engine.submit(request_of(5)).detach();
  engine.run();
  CHECK(model.log()->forwards == 7);
}

TEST_CASE("a request that throws during submission is not counted") {
  const long count = fail_each_allocation([](Failure& failure) {
    Toy engine{Drafter{}, ToyModel{toy}, {.max_requests = 1}};
    Request request = request_of(2);
    std::optional<Answer> answer;
    if (failure.spares([&] { answer = engine.submit(std::move(request)); })) return;
    CHECK(engine.stats().waiting == 0);
    Answer next = engine.submit(request_of(2));
    engine.run();
    CHECK(read(next) == "ends");
  });
  CHECK(count > 1);
}

TEST_CASE("a failing allocation in any step ends requests, and the engine runs the next one") {
  const long count = fail_each_allocation([](Failure& failure) {
    Toy engine{Drafter{}, ToyModel{toy}};
    Answer first = engine.submit(request_of(4)), second = engine.submit(request_of(4));
    failure.spares([&] { engine.run(); });
    for (Answer& answer : {std::ref(first), std::ref(second)}) {
      if (read(answer) == "ends") CHECK(answer.stats().emitted == 4);
    }
    CHECK(engine.stats().waiting + engine.stats().running == 0);
    Answer next = engine.submit(request_of(4));
    engine.run();
    CHECK(read(next) == "ends");
    CHECK(next.stats().emitted == 4);
  });
  CHECK(count > 1);
}

TEST_CASE("a request that has ended releases its callbacks") {
  Toy engine{Drafter{}, ToyModel{toy}};
  auto mine = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = mine;
  Request request = request_of(3);
  request.sampling.adjust_logits = [mine](std::span<const Token>, std::span<float>) {};
  request.progress = [mine](std::size_t, std::size_t) {};
  Answer answer = engine.submit(request, {}, [mine] {});
  Answer queued = engine.submit(request, {}, [mine] {});
  queued.cancel();
  request = {};
  mine.reset();
  engine.run();
  CHECK(seen.expired());
  CHECK(read(answer) == "ends");
}

TEST_CASE("an exception of a reader's wake() ends no other request") {
  Toy engine{Drafter{}, ToyModel{toy}};
  Answer answer = engine.submit(request_of(3), {}, [] { throw std::runtime_error("of the application"); });
  Answer other = engine.submit(request_of(3));
  engine.run();
  CHECK(read(answer) == "ends");
  CHECK(read(other) == "ends");
}

TEST_CASE("clients may leave and an engine may stop in any order") {
  for (int round = 0; round < 20; ++round) {
    auto engine = std::make_unique<Toy>(Drafter{}, ToyModel{toy}, EngineOptions{.max_running = 3});
    std::vector<std::jthread> clients;
    {
      std::jthread runner([&](std::stop_token stop) { engine->run(stop); });
      for (int client = 0; client < 3; ++client) {
        clients.emplace_back([&engine = *engine, client] {
          try {
            for (int i = 0;; ++i) {
              Answer answer = engine.submit(request_of(50));
              for (int n = 0; n < (client + i) % 7; ++n) answer.next();
            }
          } catch (const Error& error) {
            if (error.id() != "engine.stopped") throw;
          }
        });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    clients.clear();
    CHECK(engine->stats().waiting + engine->stats().running == 0);
    engine.reset();
  }
}
