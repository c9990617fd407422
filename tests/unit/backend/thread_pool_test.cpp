// The pool under stress: many tiny loops, more threads than cores, several host threads on one Cpu.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cfenv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "slm/awq/parallel.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/backend/default_device.hpp"
#include "slm/core/float_environment.hpp"
#include "slm/core/usable_cores_functions.hpp"
#include "slm/decode/side_thread.hpp"
#include "slm/engine/adapter_store.hpp"
#include "support/errors.hpp"
#include "support/random_layer.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::ThreadPool;

TEST_CASE("every task runs exactly once, on a thread with its own number") {
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

TEST_CASE("a thread processes its own share in order") {
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
          if (index < begin || index >= end) continue;  // a task of another thread's share
          CHECK(index >= next);
          next = index + 1;
        }
      }
    }
  }
}

TEST_CASE("an exception of a task, in any thread, reaches the caller after all tasks have ended") {
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

TEST_CASE("many tiny loops, one after another") {
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

TEST_CASE("sleeping workers wake up, and an idle pool ends") {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> count{0};
    pool.run(50, [&](std::uint32_t, int) { ++count; });
    CHECK(count == 50);
  }
  for (int i = 0; i < 50; ++i) ThreadPool{4};  // started and stopped immediately
}

TEST_CASE("workers do not run on their caller's core") {
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
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the worker sleeps
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

TEST_CASE("two host threads may use one Cpu: the operations alternate") {
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

TEST_CASE("an exception of one row leaves a loop over rows") {
  for (const int threads : {1, 2}) {
    backend::ThreadPool pool(threads);
    for (const int row : {0, 57, 99}) {
      CHECK_THROWS_AS(quantize::parallel_for(pool, 100,
                                             [&](std::int64_t index) {
                                               if (index == row) throw std::bad_alloc();
                                             }),
                      std::bad_alloc);
      std::atomic<int> rows = 0;
      quantize::parallel_for(pool, 100, [&](std::int64_t) { ++rows; });
      CHECK(rows == 100);  // the pool runs the next loop
    }
  }
}

TEST_CASE("too few threads are an error for an explicit number, and are accepted otherwise") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("SKIPPED: a sanitizer needs the address space");
#else
  const ToyModel model{ToyOptions{}};
  pthread_attr_t before, large;
  rlimit limit;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_attr_init(&large) == 0);
  REQUIRE(pthread_attr_setstacksize(&large, std::size_t{1} << 32) == 0);
  REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
  rlimit less = limit;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  less.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + (std::size_t{1} << 31);
  REQUIRE(pthread_setattr_default_np(&large) == 0);
  REQUIRE(setrlimit(RLIMIT_AS, &less) == 0);
  const std::string asked = error_id([] { ThreadPool{2}; });
  const std::string side = error_id([] { detail::SideThread{}; });
  const std::string store = error_id([&] { AdapterStore{model}; });
  int threads = 0, ended = 0;
  const std::string left = error_id([&] {
    ThreadPool pool(0);
    threads = pool.threads();
    pool.run(10, [&](std::uint32_t, int) { ++ended; });
  });
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  CHECK(asked == "backend.no-thread");
  CHECK(side == "backend.no-thread");
  CHECK(store == "backend.no-thread");
  CHECK(left == "no error");
  CHECK(threads == 1);
  CHECK(ended == 10);
#endif
}

TEST_CASE("the default number of threads follows from the process's affinity and CPU quota") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const int cores = usable_cores(), threads = Cpu{}.threads();
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(cores == 1);
  CHECK(threads == 1);
  CHECK(usable_cores() <= CPU_COUNT(&before));

  using detail::cores_of_quota;
  CHECK(cores_of_quota("200000", "100000") == 2);
  CHECK(cores_of_quota("150000", "100000") == 2);
  CHECK(cores_of_quota("1000", "100000") == 1);
  for (const char* none : {"max", "-1", "0", ""}) CHECK_FALSE(cores_of_quota(none, "100000"));
  CHECK_FALSE(cores_of_quota("200000", "0"));

  const TemporaryFolder root;
  const auto write = [&](const std::string& path, const std::string& contents) {
    std::filesystem::create_directories((root.path() / path).parent_path());
    std::ofstream(root.path() / path) << contents;
  };
  const auto cores_of = [&](const std::string& groups) {
    std::istringstream lines(groups);
    return detail::cores_of_groups(lines, root.path().string());
  };
  CHECK_FALSE(cores_of("0::/outer/inner\n"));
  write("outer/inner/cpu.max", "max 100000\n");
  CHECK_FALSE(cores_of("0::/outer/inner\n"));
  write("outer/cpu.max", "300000 100000\n");
  CHECK(cores_of("0::/outer/inner\n") == 3);
  write("outer/inner/cpu.max", "100000 100000\n");
  CHECK(cores_of("0::/outer/inner\n") == 1);
  CHECK_FALSE(cores_of("0::/../outer\nnonsense\n"));
  write("cpu/old/cpu.cfs_quota_us", "400000\n");
  write("cpu/old/cpu.cfs_period_us", "100000\n");
  CHECK(cores_of("4:memory:/old\n3:cpu,cpuacct:/old\n") == 4);
}

TEST_CASE("threads compute with the default floating-point mode, for any mode of their creator") {
  const auto third = [] {
    volatile float one = 1, three = 3;
    return one / three;
  };
  const auto tiny = [] {
    volatile float least = 0x1p-126f, half = 0.5f;
    return least * half;
  };
  const float nearest = third();
  std::fenv_t before;
  REQUIRE(std::fegetenv(&before) == 0);
  REQUIRE(std::fesetround(FE_DOWNWARD) == 0);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // flush to zero, denormals are zero
  const bool flushes = tiny() == 0;
#else
  const bool flushes = true;
#endif
  const bool rounds_down = third() < nearest;
  std::atomic<int> wrong{0}, in_workers{0};
  bool inside = false;
  {
    ThreadPool pool(2);
    pool.run(2000, [&](std::uint32_t, int worker) {
      std::this_thread::sleep_for(std::chrono::microseconds(5));
      if (worker == 0) return;
      ++in_workers;
      if (third() != nearest || tiny() == 0) ++wrong;
    });
    const detail::FloatEnvironment environment;
    inside = third() == nearest && tiny() != 0;
  }
  const bool restored = third() < nearest;
  std::fesetenv(&before);
  CHECK(flushes);
  CHECK(rounds_down);
  CHECK(inside);
  CHECK(restored);
  CHECK(in_workers > 0);
  CHECK(wrong == 0);
}

TEST_CASE("models without a device share one while one of them exists") {
  const Cpu one = backend::default_device<Cpu>();
  const auto threads_now = [] {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
    return count;
  };
  const int before = threads_now();
  const Cpu two = backend::default_device<Cpu>();
  CHECK(threads_now() == before);
  CHECK(two.threads() == one.threads());
}
