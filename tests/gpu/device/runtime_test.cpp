// The vendor's runtime on a device: behaviour that the fake library cannot verify.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "gpu/device/device.hpp"

using namespace slm;
using namespace slm::testing;

// nvcc does not launch a kernel of an unnamed namespace.
namespace runtime_test {

struct Increment {  // numbers += 1
  struct Args {
    std::int32_t* numbers;
    int count, blocks, threads;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static gpu::Grid grid(const Args& args, int) { return {.x = args.blocks, .threads = args.threads}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int i = lane.block_x() * lane.threads() + lane.thread();
    if (i < args.count) args.numbers[i] += 1;
  }
};

struct Shift {  // to[i] = from[i + 77] + 1, around the end
  struct Args {
    const std::int32_t* from;
    std::int32_t* to;
    int count;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static gpu::Grid grid(const Args& args, int) { return {.x = args.count / 256, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int i = lane.block_x() * 256 + lane.thread();
    args.to[i] = args.from[(i + 77) % args.count] + 1;
  }
};

}  // namespace runtime_test
using runtime_test::Increment;
using runtime_test::Shift;

namespace {

template <class Action>
std::string id_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.id();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("a device has the properties that it reports") {
  if (no_device()) return;
  const Runtime runtime;
  CHECK_FALSE(runtime.info().name.empty());
  CHECK((runtime.info().wave_width == 32 || runtime.info().wave_width == 64));
  CHECK(runtime.info().shared_bytes >= static_cast<std::size_t>(gpu::max_shared_bytes));
  CHECK(runtime.memory_free() <= runtime.info().memory_bytes);
  CHECK(id_of([] { Runtime{static_cast<int>(Runtime::devices().size())}; }) == "gpu.no-device");
}

TEST_CASE("a captured stream runs once per replay") {
  if (no_device()) return;
  Runtime runtime;
  auto stream = runtime.make_stream();
  std::vector<std::int32_t> numbers(1000, 5);
  const std::size_t bytes = numbers.size() * sizeof(std::int32_t);
  auto* const there = static_cast<std::int32_t*>(runtime.allocate(bytes));
  runtime.copy_in(there, numbers.data(), bytes, stream);
  runtime.begin_capture(stream);
  runtime.launch<Increment>({there, 1000, 4, 256}, stream);
  runtime.launch<Increment>({there, 500, 2, 256}, stream);
  const auto graph = runtime.end_capture(stream);
  for (int i = 0; i < 3; ++i) runtime.replay(graph, stream);
  runtime.copy_out(numbers.data(), there, bytes, stream);
  runtime.synchronize(stream);
  CHECK(numbers[0] == 11);
  CHECK(numbers[499] == 11);
  CHECK(numbers[500] == 8);
  CHECK(numbers[999] == 8);
  runtime.release(there);
}

TEST_CASE("a kernel sees the writes of earlier kernels, with and without overlap") {
  if (no_device()) return;
  constexpr int count = 1 << 18, length = 40;
  for (const bool dependent : {false, true}) {
    Runtime runtime(0, dependent);
    auto stream = runtime.make_stream();
    std::vector<std::int32_t> numbers(count);
    for (int i = 0; i < count; ++i) numbers[static_cast<std::size_t>(i)] = i;
    const std::size_t bytes = numbers.size() * sizeof(std::int32_t);
    auto* const a = static_cast<std::int32_t*>(runtime.allocate(bytes));
    auto* const b = static_cast<std::int32_t*>(runtime.allocate(bytes));
    runtime.copy_in(a, numbers.data(), bytes, stream);
    const auto launch = [&] {
      for (int i = 0; i < length; ++i) {
        runtime.launch<Shift>({i % 2 == 0 ? a : b, i % 2 == 0 ? b : a, count}, stream);
      }
    };
    launch();
    runtime.begin_capture(stream);
    launch();
    const auto graph = runtime.end_capture(stream);
    for (int i = 0; i < 3; ++i) runtime.replay(graph, stream);
    runtime.copy_out(numbers.data(), a, bytes, stream);
    runtime.synchronize(stream);
    int wrong = 0;
    for (int i = 0; i < count; ++i) {
      wrong += numbers[static_cast<std::size_t>(i)] != (i + 4 * length * 77) % count + 4 * length;
    }
    CHECK(wrong == 0);
    runtime.release(a);
    runtime.release(b);
  }
}

TEST_CASE("events measure time and order streams") {
  if (no_device()) return;
  Runtime runtime;
  auto first = runtime.make_stream(), second = runtime.make_stream();
  auto begin = runtime.make_event(), end = runtime.make_event();
  const std::size_t bytes = std::size_t{64} << 20;
  void* const memory = runtime.allocate(bytes);
  runtime.record(begin, first);
  runtime.fill(memory, 7, bytes, first);
  runtime.record(end, first);
  runtime.wait(end, second);
  char last = 0;
  runtime.copy_out(&last, static_cast<char*>(memory) + bytes - 1, 1, second);
  runtime.synchronize(second);
  CHECK(last == 7);
  CHECK(runtime.milliseconds(begin, end) > 0);
  runtime.release(memory);
}

TEST_CASE("a call that the device rejects is an error, and the next call works") {
  if (no_device()) return;
  Runtime runtime;
  auto stream = runtime.make_stream();
  CHECK(id_of([&] { runtime.allocate(runtime.info().memory_bytes * 2); }) == "gpu.out-of-memory");
  CHECK(id_of([&] { runtime.launch<Increment>({nullptr, 0, 0, 32}, stream); }) == "gpu.launch");
  CHECK(id_of([&] { runtime.launch<Increment>({nullptr, 0, 1, 4096}, stream); }) == "gpu.launch");
  runtime.launch<Increment>({nullptr, 0, 1, 32}, stream);
  runtime.synchronize(stream);
}
