#include "slm/core/os/atomic_wait.hpp"

#include <atomic>
#include <catch2/catch.hpp>

#include "slm/decode/side_thread.hpp"

using namespace slm;

TEST_CASE("a thread that begins to wait at the moment of the change is woken") {
  for (int thread = 0; thread < 60; ++thread) {
    detail::SideThread side;
    for (int turn = 0; turn < 50; ++turn) {
      std::atomic<bool> ready = false;
      const auto change = [&] {
        ready.store(true, std::memory_order_release);
        detail::wake_waiters(ready);
      };
      side.run(change, [&] { detail::wait_while(ready, false); });
      REQUIRE(ready);
    }
  }
}
