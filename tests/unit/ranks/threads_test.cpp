// Ranks as threads: the results of each call, and a failing, stalling or mismatched rank ends all.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "slm/ranks/alone.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/rank_answers.hpp"

using namespace slm;
using namespace slm::testing;
using ranks::Reduction;
using ranks::run_threads;
using ranks::Threads;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// The exceptions of three ranks when rank 1 does `fault` instead of a barrier.
template <class Fault>
std::vector<std::string> ids_after(Fault fault) {
  std::vector<std::string> ids(3);
  const auto members = Threads::group(3, milliseconds(300));
  std::vector<std::jthread> threads;
  for (const Threads& ranks : members) {
    threads.emplace_back([&fault, &ids, ranks] {
      std::string& id = ids[static_cast<std::size_t>(ranks.rank())];
      id = error_id([&] {
        ranks.barrier();
        ranks.rank() == 1 ? fault(ranks) : ranks.barrier();
        ranks.barrier();
      });
    });
  }
  threads.clear();
  return ids;
}

}  // namespace

TEST_CASE("every rank gets the values of all, for 1 to 8 ranks, repeatedly") {
  for (const int size : {1, 2, 3, 4, 8}) {
    std::atomic<int> wrong{0};
    run_threads(size, [&](const Threads& ranks) {
      for (int round = 0; round < 20; ++round) wrong += wrong_answers(ranks, round);
    });
    CAPTURE(size);
    CHECK(wrong == 0);
  }
  CHECK(wrong_answers(ranks::Alone{}, 3) == 0);
}

TEST_CASE("a split group has its own ranks, ordered by key, and its own calls") {
  std::atomic<int> wrong{0};
  run_threads(6, [&](const Threads& ranks) {
    const int rank = ranks.rank(), color = rank % 2;
    const Threads row = ranks.split(color, -rank);  // backwards
    wrong += row.size() != 3 || row.rank() != 2 - rank / 2;
    for (int round = 0; round < (color == 0 ? 5 : 9); ++round) wrong += wrong_answers(row, round);
    std::vector<std::uint64_t> first{static_cast<std::uint64_t>(rank)};
    row.broadcast(std::as_writable_bytes(std::span(first)), 0);
    wrong += first[0] != static_cast<std::uint64_t>(4 + color);
    const Threads alone = row.split(rank, 0);
    wrong += alone.size() != 1 || alone.rank() != 0;
    wrong += wrong_answers(ranks, 2);
  });
  CHECK(wrong == 0);
}

TEST_CASE("a rank that throws ends the others immediately, in split groups too, and its error is reported") {
  const auto began = steady_clock::now();
  std::atomic<int> ended{0};
  std::string sentence;
  try {
    run_threads(4, [&](const Threads& ranks) {
      const Threads row = ranks.split(ranks.rank() / 2, 0);
      if (ranks.rank() == 2) throw std::runtime_error("the disk is full");
      ended +=
          error_id([&] { row.rank() == 0 && row.size() == 2 ? ranks.barrier() : row.barrier(); }) == "ranks.failed";
    });
  } catch (const std::runtime_error& error) {
    sentence = error.what();
  }
  CHECK(sentence == "the disk is full");
  CHECK(ended == 3);
  CHECK(steady_clock::now() - began < std::chrono::seconds(20));  // a rank's timeout is 60
}

TEST_CASE("for any throwing rank and any exception, the others end and the caller receives it") {
  for (int thrower = 0; thrower < 4; ++thrower) {
    const auto began = steady_clock::now();
    std::atomic<int> ended{0};
    int thrown = -1;
    try {
      run_threads(4, [&](const Threads& ranks) {
        ranks.barrier();
        if (ranks.rank() == thrower) throw thrower;  // not derived from std::exception
        ended += error_id([&] { ranks.barrier(); }) == "ranks.failed";
      });
    } catch (int number) {
      thrown = number;
    }
    CHECK(thrown == thrower);
    CHECK(ended == 3);
    CHECK(steady_clock::now() - began < std::chrono::seconds(20));
  }
}

TEST_CASE("polling reports a failed rank without waiting") {
  const auto members = Threads::group(2);
  members[0].poll();
  members[1].fail("no reason");
  CHECK(error_id([&] { members[0].poll(); }) == "ranks.failed");
}

TEST_CASE("a rank that stalls is named by the waiting ones") {
  std::mutex mutex;
  std::vector<std::string> sentences;
  const auto watch = [&](const Threads& ranks) {
    try {
      if (ranks.rank() == 1) std::this_thread::sleep_for(milliseconds(400));
      ranks.barrier();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      sentences.emplace_back(error.what());
    }
  };
  run_threads(3, watch, milliseconds(50));
  CHECK(sentences.size() == 3);  // it receives that itself when it arrives
  for (const std::string& sentence : sentences) {
    CHECK(sentence.find("rank 1 did not arrive within 50 ms") != std::string::npos);
    CHECK(sentence.find("[ranks.failed]") != std::string::npos);
  }
}

TEST_CASE("ranks with different calls all report it") {
  const std::vector<std::string> out_of_step(3, "ranks.out-of-step");
  std::uint64_t number = 1;
  std::byte bytes[8] = {};
  const std::vector<std::size_t> sizes{2, 2, 2}, other{2, 2, 4};
  CHECK(ids_after([](const Threads& ranks) { ranks.split(0, 0); }) == out_of_step);
  CHECK(ids_after([&](const Threads& ranks) { ranks.all_reduce({&number, 1}, Reduction::sum); }) == out_of_step);
  CHECK(ids_after([&](const Threads& ranks) { ranks.broadcast(bytes, 0); }) == out_of_step);
  CHECK(ids_after([&](const Threads& ranks) { ranks.all_gather({bytes, 3}, sizes, {bytes, 6}); }) == out_of_step);
  CHECK(ids_after([&](const Threads& ranks) { ranks.fail("no reason"); }) ==
        std::vector<std::string>(3, "ranks.failed"));
  CHECK(ids_after([](const Threads& ranks) { ranks.barrier(); }) == std::vector<std::string>(3, "no error"));
  // Each expects other sizes of all parts, while its own is as all expect.
  std::atomic<int> refused{0};
  CHECK_THROWS_AS(run_threads(3,
                              [&](const Threads& ranks) {
                                const bool odd = ranks.rank() == 0;
                                std::byte all[8];
                                try {
                                  ranks.all_gather({bytes, 2}, odd ? other : sizes, {all, odd ? 8u : 6u});
                                } catch (const Error&) {
                                  ++refused;
                                  throw;
                                }
                              }),
                  Error);
  CHECK(refused == 3);
}

TEST_CASE("ranks with different data report the difference and its rank") {
  std::atomic<int> told{0};
  run_threads(3, [&](const Threads& ranks) {
    ranks::require_same(ranks, "version", 5);
    try {
      ranks::require_same(ranks, "checkpoint", ranks.rank() == 2 ? 7 : 8);
    } catch (const Error& error) {
      told += error.id() == "ranks.different" &&
              std::string(error.what()).starts_with("rank 2 expected the same checkpoint as rank 0, found another");
    }
  });
  CHECK(told == 3);
}
