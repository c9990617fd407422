// An exception of a loop on the GPU's host side, or of a thread of an emulated kernel, reaches the caller, and the next
// call works.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "slm/backend/gpu/runtime/runtime_lanes.hpp"
#include "slm/backend/gpu/weights/tile_matrix.hpp"
#include "support/allocations.hpp"

using namespace slm;
using namespace slm::gpu;
using namespace slm::testing;
using backend::LanesRuntime;

namespace {

enum class Thrown { nothing, error, no_memory, number };

/// Two blocks of 128 threads with barriers before and after the exception of one of them.
struct Throwing {
  struct Args {
    Memory<float> out;
    Thrown thrown;
    int thread;
  };
  struct Shared {
    float value[128];
  };
  static constexpr int max_block = 128;
  static Grid grid(const Args&, int) { return {.x = 2, .threads = 128}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int t = lane.thread();
    shared.value[t] = lane.wave_sum(1.0f);
    lane.barrier();
    if (lane.block_x() == 1 && t == args.thread) {
      if (args.thrown == Thrown::error) throw Error("gpu.launch", "this thread throws", "Let it");
      if (args.thrown == Thrown::no_memory) throw std::bad_alloc{};
      if (args.thrown == Thrown::number) throw 5;
    }
    lane.barrier();
    args.out[lane.block_x() * 128 + t] = shared.value[127 - t];
  }
};

std::string caught(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return "bad_alloc";
  } catch (const std::runtime_error& error) {
    return error.what();
  } catch (int number) {
    return std::to_string(number);
  }
  return "nothing";
}

template <class Layout>
void check_kernels(int device) {
  LanesRuntime<Layout> runtime(device);
  auto stream = runtime.make_stream();
  const auto run = [&](Thrown thrown, int thread) {
    std::vector<float> out(256);
    const std::string what = caught([&] {
      runtime.template launch<Throwing>({{out.data(), 256}, thrown, thread}, stream);
    });
    if (thrown != Thrown::nothing) return what;
    const bool sound = std::count(out.begin(), out.end(), static_cast<float>(Layout::lanes)) == 256;
    return what + (sound ? "" : ", wrong result");
  };
  for (const int thread : {0, 1, 31, 32, 64, 127}) {
    CAPTURE(thread, device);
    CHECK(run(Thrown::error, thread).find(text("block 1,0,0, thread ", thread, ": this thread throws")) == 0);
    CHECK(run(Thrown::nothing, 0) == "nothing");
    CHECK(run(Thrown::no_memory, thread) == "bad_alloc");
    CHECK(run(Thrown::number, thread) == "5");
    CHECK(run(Thrown::nothing, 0) == "nothing");
  }
}

}  // namespace

TEST_CASE("an exception of an emulated kernel's thread reaches the launching thread, and the next kernel runs") {
  for (const int device : {0, 1}) {  // forward and backward
    check_kernels<MmaSync16x8x16>(device);
    check_kernels<Mfma16x16x16>(device);
  }
}

TEST_CASE("an exception of a part of a parallel loop reaches its caller, after all parts have ended") {
  for (std::int64_t thrower = 0; thrower < 640; thrower += 63) {
    std::atomic<int> running = 0;
    const std::string what = caught([&] {
      in_parallel(640, 1, [&](std::int64_t first, std::int64_t last) {
        ++running;
        std::this_thread::sleep_for(std::chrono::milliseconds(first == 0 ? 0 : 2));
        --running;
        if (first <= thrower && thrower < last) throw std::runtime_error("a row");
      });
    });
    CHECK(what == "a row");
    CHECK(running == 0);
  }
  const auto all = [] { in_parallel(640, 1, [](std::int64_t, std::int64_t) { throw 7; }); };
  CHECK(caught(all) == "7");
}

TEST_CASE("a failing allocation in a parallel loop is an exception of its caller") {
  for (const Failing whose : {Failing::here, Failing::everywhere}) {
    int failed = 0, wrong = 0;
    fail_each_allocation(
        [&](Failure& failure) {
          std::atomic<std::int64_t> rows = 0;
          const bool returned = failure.spares([&] {
            in_parallel(640, 1, [&](std::int64_t first, std::int64_t last) {
              const std::vector<int> memory(100);
              rows += last - first;
            });
          });
          failed += !returned;
          wrong += returned && rows != 640;
        },
        whose);
    CHECK(failed > 0);
    CHECK(wrong == 0);
  }
}
