// An engine whose requests use adapters of a store: each is answered as if alone, with any capacity of the store.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/backend/gpu/lanes.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

const fs::path base = fixture("models/llama3-gqa-scaled-tied");

std::string name_of(std::uint64_t i) { return "n" + std::to_string(i); }

/// Folders n0, n1, ... in one.
void write_adapters(const fs::path& folder, std::uint64_t count) {
  const Checkpoint checkpoint(base);
  for (std::uint64_t i = 0; i < count; ++i) {
    write_random_adapter(folder / name_of(i), checkpoint, {.seed = 1 + i, .rank = 2, .size = 2, .type = DType::bf16});
  }
}

Request request_of(std::uint64_t number, const ModelInfo& model) {
  Request request{.prompt = {},
                  .sampling = {.max_new_tokens = 4, .temperature = number % 2 ? 0.8f : 0.0f, .seed = number}};
  request.sampling.ignore_end_tokens = true;
  for (std::uint64_t i = 0; i < 3 + number % 5; ++i) {
    request.prompt.push_back(static_cast<Token>(mix(number * 31 + i) % static_cast<std::uint64_t>(model.vocab)));
  }
  return request;
}

std::vector<Token> alone(const AnyModel& model, Request request, const AdapterRef& adapter) {
  request.adapter = adapter;
  std::vector<Token> text;
  AutoregressiveDecoder decoder{model};
  decoder.generate(request, [&](Token token) { text.push_back(token); });
  return text;
}

std::vector<Token> fetch(Answer& answer) {
  std::vector<Token> text;
  while (const auto token = answer.try_next()) text.push_back(token->token);
  return text;
}

/// Requests over many adapters with capacity for few, on a device with separate memory for fewer still.
AdapterStoreStats check_few_places(const AnyModel& model, std::uint64_t adapters, std::uint64_t requests) {
  constexpr std::uint64_t places = 6;
  TemporaryFolder folder;
  write_adapters(folder.path(), adapters);
  std::vector<AdapterRef> own;
  std::size_t largest = 0;
  for (std::uint64_t i = 0; i < adapters; ++i) {
    own.push_back(load_adapter(folder.path() / name_of(i), model));
    largest = std::max<std::size_t>(largest, fs::file_size(folder.path() / name_of(i) / "adapter_model.safetensors"));
  }
  AdapterStore store(model, {.folder = folder.path(),
                             .device_memory = model.info().own_memory ? (places - 2) * largest : 0,
                             .host_memory = places * largest});
  Engine engine{Drafter{}, model, {.max_running = 16}};
  std::vector<std::optional<std::uint64_t>> wanted;
  std::vector<Answer> answers;
  std::int64_t asked = 0;
  for (std::uint64_t i = 0; i < requests; ++i) {
    // A few are popular, many are rare, and one request in eight uses none.
    const std::uint64_t draw = mix(i) % 64;
    wanted.push_back(draw < 8 ? std::nullopt : std::optional(draw < 32 ? draw % 4 : mix(i * 3) % adapters));
    Scheduling scheduling{.priority = static_cast<int>(mix(i * 5) % 3)};
    if (wanted.back()) scheduling.adapter = store.lease(name_of(*wanted.back())), ++asked;
    answers.push_back(engine.submit(request_of(i, model.info()), scheduling));
    if (i % 3 == 0) engine.step();
  }
  engine.run();
  for (std::uint64_t i = 0; i < requests; ++i) {
    CAPTURE(i);
    const AdapterRef adapter = wanted[i] ? own[*wanted[i]] : nullptr;
    REQUIRE(fetch(answers[i]) == alone(model, request_of(i, model.info()), adapter));
  }
  const AdapterStoreStats stats = store.stats();
  CHECK(stats.in_use.empty());  // an idle engine holds none
  CHECK(stats.awaited.empty());
  CHECK(stats.hits + stats.misses == asked);
  CHECK(stats.host.loads == stats.host.evictions + stats.host.freed + static_cast<std::int64_t>(stats.host.adapters));
  CHECK(stats.host.evictions > 0);
  CHECK(stats.host.bytes <= stats.host.budget);
  CHECK(stats.failures == 0);
  return stats;
}

}  // namespace

TEST_CASE("a thousand requests over many adapters with a small capacity are answered as if alone") {
  check_few_places(load(base, backend::Cpu({.threads = 1})), 40, 1000);
}

TEST_CASE("a store places adapters in the memory of an emulated GPU, and evicts them there too") {
  const AdapterStoreStats stats = check_few_places(load(base, backend::Lanes32{1}), 12, 60);
  CHECK(stats.device.evictions > 0);
  CHECK(stats.device.bytes <= stats.device.budget);
}

TEST_CASE("requests whose adapter cannot be loaded fail alone and delay no other request") {
  TemporaryFolder folder;
  write_adapters(folder.path(), 3);
  const AnyModel model = load(base, backend::Cpu({.threads = 1}));
  AdapterStore store(model, {.folder = folder.path()});
  fs::remove(folder.path() / "n1" / "adapter_model.safetensors");  // between scan and load
  Engine engine{Drafter{}, model};
  std::vector<Answer> answers;
  for (std::uint64_t i = 0; i < 12; ++i) {
    Scheduling scheduling;
    if (i % 4 != 3) scheduling.adapter = store.lease(name_of(i % 4));
    answers.push_back(engine.submit(request_of(i, model.info()), scheduling));
  }
  engine.run();
  for (std::uint64_t i = 0; i < answers.size(); ++i) {
    CAPTURE(i);
    CHECK(error_id([&] { fetch(answers[i]); }) == (i % 4 == 1 ? "adapter.missing-tensor" : "no error"));
    CHECK(answers[i].over());
  }
  CHECK(engine.stats().finished_by[static_cast<std::size_t>(FinishReason::error)] == 3);

  const AnyModel other = load(base, backend::Cpu({.threads = 1}));
  AdapterStore foreign(other, {.folder = folder.path()});
  Answer answer = engine.submit(request_of(1, model.info()), {.adapter = foreign.lease("n0")});
  engine.run();
  CHECK(error_id([&] { fetch(answer); }) == "adapter.other-model");
}

TEST_CASE("other requests run while an adapter is loaded, and a request may end while it waits") {
  TemporaryFolder folder;
  write_adapters(folder.path(), 1);
  const AnyModel model = load(base, backend::Cpu({.threads = 1}));
  AdapterStore store(model, {.folder = folder.path(), .host_memory = 1 << 20});
  const AdapterRef held = store.lease("n0").wait();
  write_adapters(folder.path(), 2);
  AdapterStore full(model, {.folder = folder.path(), .host_memory = held->bytes + held->bytes / 2});
  const AdapterRef taken = full.lease("n0").wait();  // no memory for another one
  Engine engine{Drafter{}, model};
  Answer waits = engine.submit(request_of(1, model.info()), {.adapter = full.lease("n1")});
  Answer late = engine.submit(request_of(1, model.info()),
                              {.deadline = std::chrono::steady_clock::now(), .adapter = full.lease("n1")});
  Answer goes = engine.submit(request_of(2, model.info()), {.adapter = full.lease("n0")});
  Answer bare = engine.submit(request_of(3, model.info()));
  while (engine.step()) continue;
  CHECK(!waits.over());
  CHECK(engine.stats().waiting == 1);
  CHECK(engine.stats().deferred == 1);
  CHECK(late.stats().finish_reason == FinishReason::deadline);
  CHECK(fetch(goes) == alone(model, request_of(2, model.info()), held));
  CHECK(fetch(bare) == alone(model, request_of(3, model.info()), nullptr));
  waits.cancel();
  engine.run();
  CHECK(waits.over());
  CHECK(engine.stats().deferred == 0);
}

TEST_CASE("replacing an adapter under load changes no running text and exchanges no pages") {
  TemporaryFolder folder;
  write_adapters(folder.path(), 2);
  const AnyModel model = load(base, backend::Cpu({.threads = 1}));
  const AdapterRef first = load_adapter(folder.path() / "n0", model),
                   second = load_adapter(folder.path() / "n1", model);
  AdapterStore store(model, {.folder = folder.path()});
  Engine engine{Drafter{}, model};
  Request request = request_of(2, model.info());
  request.prompt = std::vector<Token>(150, 7);  // with shared pages
  request.sampling.max_new_tokens = 40;
  Answer before = engine.submit(request, {.adapter = store.lease("n0")});
  while (engine.stats().running == 0) engine.step();
  for (int i = 0; i < 10; ++i) engine.step();
  store.load("n0", folder.path() / "n1", {.replace = true}).wait();
  Answer after = engine.submit(request, {.adapter = store.lease("n0")});
  engine.run();
  CHECK(fetch(before) == alone(model, request, first));
  CHECK(fetch(after) == alone(model, request, second));
  CHECK(alone(model, request, first) != alone(model, request, second));
}
