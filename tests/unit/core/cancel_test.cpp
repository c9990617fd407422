// Tokens that end requests, and threads that are joined.
#include "slm/core/cancel.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <utility>

#include "slm/core/start_thread.hpp"

using namespace slm;

TEST_CASE("a token reports the request of its source, also to other threads") {
  const CancelToken never;
  CHECK(!never.stop_requested());

  CancelSource source;
  const CancelSource copy = source;
  const CancelToken token = source.get_token();
  CHECK((!token.stop_requested() && !source.stop_requested()));
  std::atomic<bool> noticed{false};
  {
    const detail::JoinedThread waits = detail::start_thread([&noticed, token] {
      while (!token.stop_requested()) std::this_thread::yield();
      noticed = true;
    });
    CHECK(!noticed);
    source.request_stop();
  }
  CHECK((noticed && copy.stop_requested() && copy.get_token().stop_requested()));
  source = CancelSource();
  CHECK((!source.stop_requested() && token.stop_requested()));
}

TEST_CASE("another type of token becomes a token") {
  struct Other {
    std::shared_ptr<int> state;
    bool stop_requested() const { return *state > 2; }
  };
  const auto state = std::make_shared<int>(2);
  CancelToken token;
  token = Other{state};
  CHECK(state.use_count() == 2);
  CHECK(!token.stop_requested());
  *state = 3;
  const CancelToken copy = token;
  token = {};
  CHECK((copy.stop_requested() && !token.stop_requested()));
}

TEST_CASE("a thread is joined by its destructor and before another takes its place") {
  std::atomic<int> ended{0};
  const auto work = [&ended] {
    std::this_thread::yield();
    ++ended;
  };
  detail::JoinedThread thread = detail::start_thread(work);
  thread = detail::start_thread(work);
  CHECK(ended >= 1);
  detail::JoinedThread moved = std::move(thread);
  moved.join();
  CHECK(ended == 2);
  moved.join();
  { const detail::JoinedThread last = detail::start_thread(work); }
  CHECK(ended == 3);
}
