// Ranks with each allocation failing in turn: the exception reaches the caller, and no rank hangs.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "slm/ranks/team.hpp"
#include "slm/ranks/threads.hpp"
#include "support/allocations.hpp"

using namespace slm;
using namespace slm::testing;
using ranks::run_threads;
using ranks::Threads;
using Team = ranks::Team<Threads>;
using std::chrono::steady_clock;

namespace {

constexpr auto patience =
    std::chrono::seconds(60);  // longer than the test's time limit: no failure is detected by a timeout

void reduce_over_ranks() {
  run_threads(
      3,
      [](const Threads& ranks) {
        const Threads part = ranks.split(ranks.rank() / 2, 0);
        std::vector<std::uint64_t> numbers(20, 1);
        part.all_reduce(numbers, ranks::Reduction::sum);
        ranks.barrier();
      },
      patience);
}

void tell_a_team() {
  run_threads(
      3,
      [](const Threads& ranks) {
        Team team(ranks, std::chrono::milliseconds(1));
        if (!team.leads()) {
          while (team.next()) continue;
          return;
        }
        for (const std::size_t size : {10u, 10000u}) {
          ranks::Message message;
          message.put_all(std::span<const char>(std::vector<char>(size)));
          const auto speaks = team.lock();
          team.send_all(message);
        }
      },
      patience);
}

}  // namespace

TEST_CASE("a failing allocation in any thread of ranks is an exception of the caller") {
  for (const Failing whose : {Failing::here, Failing::elsewhere, Failing::everywhere}) {
    for (const auto action : {reduce_over_ranks, tell_a_team}) {
      const auto began = steady_clock::now();
      int failed = 0;
      fail_each_allocation([&](Failure& failure) { failed += !failure.spares(action); }, whose);
      CHECK(failed > 3);
      CHECK(steady_clock::now() - began < patience);
      CHECK_NOTHROW(action());
    }
  }
}

TEST_CASE("a failed team reports it even without memory for the reason") {
  Team team(Threads::group(1).front());
  Failure failure(1, true, Failing::here);
  failure.spares([&] { team.together([] { throw std::bad_alloc{}; }); });
  CHECK(!team.failure().empty());
  team.give_up();
  CHECK(team.failure() == "a step was interrupted");
}
