// An application's threads run the loops of the CPU: the same bits for any order and number of threads, and errors that
// leave the model usable.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/core/executor.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::ThreadPool;

namespace {

/// An executor made of a function.
class Custom : public Executor {
 public:
  using Run = std::function<void(int, Part)>;
  Custom(int threads, Run run) : threads_(threads), run_(std::move(run)) {}

  int threads() const override { return threads_; }
  void run(int parts, Part part) override {
    ++runs;
    run_(parts, part);
  }

  std::atomic<int> runs{0};

 private:
  int threads_;
  Run run_;
};

using Made = std::shared_ptr<Custom>;

Made custom(int threads, Custom::Run run) { return std::make_shared<Custom>(threads, std::move(run)); }

void in_order(int parts, Executor::Part part) {
  for (int i = 0; i < parts; ++i) part(i);
}

void reversed(int parts, Executor::Part part) {
  for (int i = parts; i-- > 0;) part(i);
}

void asynchronous(int parts, Executor::Part part) {
  std::vector<std::future<void>> running;
  for (int i = 0; i < parts; ++i) running.push_back(std::async(std::launch::async, [part, i] { part(i); }));
  for (auto& one : running) one.get();
}

/// Two threads for any number of parts, and nothing in the thread of the caller.
void two_threads(int parts, Executor::Part part) {
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i; (i = next++) < parts;) part(i);
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
}

std::vector<float> forward(const AnyModel& model, Sequence& sequence, int length) {
  std::vector<Token> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back((i * 37 + 5) % model.info().vocab);
  Batch batch;
  batch.add(sequence, tokens, {.result = RowResult::logits});
  model.forward(batch);
  const auto logits = batch.logits(0);
  return {logits.data, logits.data + logits.size()};
}

/// The logits after a prompt of more than one page, and of a further token.
std::vector<float> logits_of(const AnyModel& model) {
  Sequence sequence = model.sequence();
  std::vector<float> all = forward(model, sequence, 70);
  const std::vector<float> more = forward(model, sequence, 1);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

AnyModel load_on(const Made& executor, const std::string& name = "target", LoadOptions options = {}) {
  return load(demo_pair(name), Cpu({.executor = executor}), options);
}

}  // namespace

TEST_CASE("any executor computes the bits of slm's own threads") {
  struct Way {
    int threads;
    Custom::Run run;
  };
  const std::vector<Way> ways{{5, reversed}, {3, asynchronous}, {7, two_threads}, {1, in_order}, {64, in_order}};
  for (const int bits : {0, 4}) {
    const std::vector<float> expected = logits_of(load(demo_pair("target"), Cpu{2}, {.bits = bits}));
    for (const Way& way : ways) {
      const Made executor = custom(way.threads, way.run);
      CAPTURE(bits, way.threads);
      CHECK(same(logits_of(load_on(executor, "target", {.bits = bits})), expected));
      CHECK((executor->runs > 0) == (way.threads > 1));
    }
  }
}

TEST_CASE("speculative decoding on an executor yields the text of slm's own threads") {
  const std::vector<Token> prompt{5, 42, 79, 116};
  const auto text_of = [&](const AnyModel& draft, const AnyModel& target) {
    std::vector<Token> tokens;
    SpeculativeDecoder decoder(draft, target, {.draft_tokens = 3});
    decoder.generate(prompt, {.max_new_tokens = 24, .temperature = 0.8f, .seed = 3, .ignore_end_tokens = true},
                     [&](Token token) { tokens.push_back(token); });
    return tokens;
  };
  const std::vector<Token> expected = text_of(load(demo_pair("draft"), Cpu{1}), load(demo_pair("target"), Cpu{1}));
  const Cpu device({.executor = custom(3, asynchronous)});
  CHECK(text_of(load(demo_pair("draft"), device), load(demo_pair("target"), device)) == expected);
}

TEST_CASE("the number of threads limits the parts of an executor") {
  int most = 0;
  const Made executor = custom(8, [&most](int parts, Executor::Part part) {
    most = std::max(most, parts);
    in_order(parts, part);
  });
  const Cpu device({.threads = 3, .executor = executor});
  CHECK(device.threads() == 3);
  CHECK(Cpu({.executor = executor}).threads() == 8);
  logits_of(load(demo_pair("target"), device));
  CHECK(most == 3);
  CHECK(error_id([] { Cpu({.executor = custom(0, in_order)}); }) == "backend.invalid-threads");
  CHECK(error_id([] { Cpu({.executor = custom(1025, in_order)}); }) == "backend.invalid-threads");
}

TEST_CASE("an executor that fails is an error, and the model and its sequences remain usable") {
  int fails_at = -1, runs = 0;
  Custom::Run fail;
  const Made executor = custom(4, [&](int parts, Executor::Part part) {
    if (runs++ == fails_at) return fail(parts, part);
    in_order(parts, part);
  });
  const AnyModel model = load_on(executor);
  Sequence sequence = model.sequence();
  forward(model, sequence, 70);
  runs = 0;
  Sequence whole = sequence.fork();
  const std::vector<float> expected = forward(model, whole, 5);
  const int all = runs;
  REQUIRE(all > 4);

  const Custom::Run failures[] = {
      [](int, Executor::Part) { throw std::runtime_error("no threads today"); },
      [](int, Executor::Part part) {
        part(1);
        throw 7;
      },
      [](int parts, Executor::Part part) {
        in_order(parts, part);
        throw std::runtime_error("late");
      },
      [](int, Executor::Part) {},
      [](int parts, Executor::Part part) { in_order(parts - 1, part); },
      [](int parts, Executor::Part part) {
        in_order(parts, part);
        part(0);
      },
      [](int parts, Executor::Part part) {
        in_order(parts - 1, part);
        part(parts + 100);
        part(-1);
      },
  };
  for (const Custom::Run& failure : failures) {
    fail = failure;
    for (const int at : {0, all / 2, all - 1}) {
      fails_at = at;
      runs = 0;
      const std::size_t length = sequence.tokens().size();
      CHECK(error_id([&] { forward(model, sequence, 5); }) == "backend.executor");
      CHECK(sequence.tokens().size() == length);
      fails_at = -1;
      Sequence again = sequence.fork();
      CHECK(same(forward(model, again, 5), expected));
    }
  }
}

TEST_CASE("the text of an executor's exception is part of the error") {
  ThreadPool pool(2, custom(2, [](int, Executor::Part) { throw std::runtime_error("no threads today"); }));
  try {
    pool.run(10, [](std::uint32_t, int) {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("no threads today") != std::string::npos);
  }
}

TEST_CASE("an executor that returns too early does not leave running tasks behind") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::thread stray;
    std::atomic<int> begun{0}, ended{0};
    ThreadPool pool(2, custom(2, [&](int, Executor::Part part) {
                      stray = std::thread([part] { part(1); });
                      while (begun == 0) std::this_thread::yield();
                    }));
    const auto loop = [&] {
      pool.run(100, [&](std::uint32_t, int) {
        ++begun;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        ++ended;
      });
    };
    CHECK(error_id(loop) == "backend.executor");
    const int now = ended;
    CHECK(begun == now);
    stray.join();
    CHECK(ended == now);
  }
}

TEST_CASE("an exception of a task on an executor reaches the caller") {
  for (const auto& run : {Custom::Run(reversed), Custom::Run(asynchronous)}) {
    ThreadPool pool(0, custom(3, run));
    std::atomic<int> ended{0};
    const auto loop = [&] {
      pool.run(50, [&](std::uint32_t index, int) {
        ++ended;
        if (index == 17) throw std::bad_alloc();
      });
    };
    CHECK_THROWS_AS(loop(), std::bad_alloc);
    CHECK(ended == 50);
    ended = 0;
    pool.run(50, [&](std::uint32_t, int worker) { ended += worker >= 0 && worker < 3 ? 1 : 0; });
    CHECK(ended == 50);
  }
}

TEST_CASE("a step in a thread that waits for a step of the same device is an error instead of a standstill") {
  std::string nested = "not tried";
  std::unique_ptr<AnyModel> same_device, other_device;
  std::string other = "not tried";
  const Made executor = custom(3, [&](int parts, Executor::Part part) {
    if (same_device && nested == "not tried") {
      nested = error_id([&] { logits_of(*same_device); });
      other = error_id([&] { logits_of(*other_device); });
    }
    in_order(parts, part);
  });
  const Cpu device({.executor = executor});
  const AnyModel model = load(demo_pair("target"), device);
  const std::vector<float> expected = logits_of(model);
  other_device = std::make_unique<AnyModel>(load(demo_pair("draft"), Cpu{2}));
  same_device = std::make_unique<AnyModel>(load(demo_pair("draft"), device));
  CHECK(same(logits_of(model), expected));
  CHECK(nested == "backend.executor-waits");
  CHECK(other == "no error");
}

TEST_CASE("two devices with one executor run at the same time") {
  const Made executor = custom(2, asynchronous);
  const std::vector<float> expected = logits_of(load(demo_pair("target"), Cpu{1}));
  std::vector<float> found[2];
  const auto work = [&](int i) {
    const AnyModel model = load_on(executor);
    for (int repeat = 0; repeat < 5; ++repeat) found[i] = logits_of(model);
  };
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
  CHECK(same(found[0], expected));
  CHECK(same(found[1], expected));
}

TEST_CASE("devices without a number of threads share one pool, whose loops alternate") {
  CHECK(ThreadPool::common() == ThreadPool::common());
  const std::shared_ptr<ThreadPool> pool = ThreadPool::common();
  const long before = pool.use_count();
  const Cpu one, copying({.copy_weights = true}), own{2};
  CHECK(pool.use_count() == before + 2);
  const std::vector<float> expected = logits_of(load(demo_pair("target"), own));
  std::vector<float> found[2];
  const auto work = [&](int i) {
    const AnyModel model = load(demo_pair("target"), i == 0 ? one : copying);
    for (int repeat = 0; repeat < 10; ++repeat) found[i] = logits_of(model);
  };
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
  CHECK(same(found[0], expected));
  CHECK(same(found[1], expected));
}
