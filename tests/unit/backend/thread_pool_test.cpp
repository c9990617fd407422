// The pool under stress: many tiny loops, more threads than cores, several host threads on one Cpu.
#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::ThreadPool;

TEST_CASE("every task runs exactly once, on a thread of its own number") {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (const std::uint32_t count : {0u, 1u, 2u, 3u, 64u, 1000u}) {
      std::vector<std::atomic<int>> runs(count);
      std::atomic<bool> wrong_worker{false};
      pool.run(count, [&](std::uint32_t index, int worker) {
        ++runs[index];
        if (worker < 0 || worker >= threads) wrong_worker = true;
      });
      CHECK_FALSE(wrong_worker);
      for (const auto& run : runs) REQUIRE(run == 1);
    }
  }
}

TEST_CASE("a thread works through its own share in order") {
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    for (const std::uint32_t count : {2u, 5u, 100u}) {
      std::vector<std::vector<std::uint32_t>> claimed(static_cast<std::size_t>(threads));
      pool.run(count, [&](std::uint32_t index, int worker) {
        claimed[static_cast<std::size_t>(worker)].push_back(index);
        std::this_thread::yield();
      });
      for (std::size_t worker = 0; worker < claimed.size(); ++worker) {
        const std::size_t begin = count * worker / claimed.size(), end = count * (worker + 1) / claimed.size();
        std::size_t next = begin;
        for (const std::uint32_t index : claimed[worker]) {
          if (index < begin || index >= end) continue;  // another's, done for it
          CHECK(index >= next);
          next = index + 1;
        }
      }
    }
  }
}

TEST_CASE("what a task throws, in any thread, reaches the caller after all tasks have ended") {
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    for (const bool in_worker : {false, true}) {
      const auto caller = std::this_thread::get_id();
      std::atomic<int> ended{0}, thrown{0};
      const auto loop = [&] {
        pool.run(1000, [&](std::uint32_t, int) {
          std::this_thread::sleep_for(std::chrono::microseconds(5));
          ++ended;
          if ((std::this_thread::get_id() != caller) != in_worker) return;
          ++thrown;
          throw std::bad_alloc();
        });
      };
      CHECK_THROWS_AS(loop(), std::bad_alloc);
      CHECK(ended == 1000);
      CHECK(thrown > 0);
      std::atomic<int> after{0};
      CHECK_NOTHROW(pool.run(100, [&](std::uint32_t, int) { ++after; }));
      CHECK(after == 100);
    }
  }
}

TEST_CASE("many tiny loops, one after the other") {
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::atomic<std::int64_t> sum{0};
    std::int64_t expected = 0;
    for (std::uint32_t loop = 0; loop < 20000; ++loop) {
      const std::uint32_t count = loop % 5;
      pool.run(count, [&](std::uint32_t index, int) { sum.fetch_add(index + loop, std::memory_order_relaxed); });
      for (std::uint32_t index = 0; index < count; ++index) expected += index + loop;
    }
    CHECK(sum == expected);
  }
}

TEST_CASE("workers that fell asleep wake up, and an idle pool ends") {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> count{0};
    pool.run(50, [&](std::uint32_t, int) { ++count; });
    CHECK(count == 50);
  }
  for (int i = 0; i < 50; ++i) ThreadPool{4};  // started and stopped at once
}

TEST_CASE("workers stay off their caller's processor") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  if (CPU_COUNT(&before) < 2) {
    WARN("SKIPPED: only one processor");
    return;
  }
  ThreadPool pool(2);
  for (int cpu = 0, pinned = 0; cpu < CPU_SETSIZE && pinned < 2; ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    ++pinned;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int loop = 0; loop < 5; ++loop) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the worker falls asleep
      std::atomic<int> beside{0};
      pool.run(100, [&](std::uint32_t, int worker) {
        if (worker == 1 && sched_getcpu() == cpu) ++beside;
        for (int i = 0; i < 10000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      });
      CHECK(beside == 0);
    }
  }
  sched_setaffinity(0, sizeof before, &before);
}

TEST_CASE("two host threads may use one Cpu: the operations take turns") {
  Cpu shared{2};
  const auto work = [&shared](int seed, std::vector<float>& logits) {
    Cpu device = shared;  // a copy of the handle
    RandomLayer<Bf16> layer({4, 2, 32}, 256, 512, 300, 64, static_cast<std::uint64_t>(seed));
    const std::vector<float> input = Random(static_cast<std::uint64_t>(seed)).vector(4 * 256);
    for (int repeat = 0; repeat < 20; ++repeat) {
      TestCache cache(layer.heads, 64);
      logits = run_layer(device, layer, input, 0, cache).logits;
    }
  };
  std::vector<float> alone[2], together[2];
  for (int i = 0; i < 2; ++i) work(i, alone[i]);
  std::thread first(work, 0, std::ref(together[0])), second(work, 1, std::ref(together[1]));
  first.join();
  second.join();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(alone[i].size() == together[i].size());
    CHECK(std::memcmp(alone[i].data(), together[i].data(), alone[i].size() * sizeof(float)) == 0);
  }
}
