// The runtimes of NVIDIA and AMD against a library that records calls and fails on request: calls, devices, and the
// errors of every failure. Compiled as CUDA and as HIP; needs no device.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gpu/fake/vendor.hpp"

// nvcc does not launch a kernel of an unnamed namespace.
namespace runtime_test {
struct Double {  // numbers *= 2
  struct Args {
    float* numbers;
    int count;
  };
  struct Shared {};
  static constexpr int max_block = 64;
  static slm::gpu::Grid grid(const Args& args, int wave_width) {
    return {.x = args.count, .y = 2, .z = 3, .threads = wave_width};
  }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    args.numbers[lane.thread()] *= 2;
  }
};
}  // namespace runtime_test

namespace {

using namespace slm;
using fake::Api;
using fake::Fresh;
using fake::library;
using fake::Runtime;
using runtime_test::Double;

#if defined(__CUDACC__)
constexpr int no_code = cudaErrorNoKernelImageForDevice;
constexpr int no_device = cudaErrorNoDevice;
constexpr int lost_handle = cudaErrorInvalidResourceHandle;
constexpr int refused = cudaErrorInvalidConfiguration;
constexpr const char* architecture = "sm_90";
constexpr const char* driver = "CUDA 13.0";
#else
constexpr int no_code = hipErrorNoBinaryForGpu;
constexpr int no_device = hipErrorNoDevice;
constexpr int lost_handle = hipErrorInvalidHandle;
constexpr int refused = hipErrorInvalidConfiguration;
constexpr const char* architecture = "gfx90a";
constexpr const char* driver = "HIP 5.2";
#endif

constexpr const char* in_turn = Api::launch(gpu::Start::in_turn);

/// The id and the whole text of the exception of `action`.
template <class Action>
std::pair<std::string, std::string> error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.id(), error.what()};
  }
  return {"", "nothing was thrown"};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t calls_of(const std::string& call) {
  return static_cast<std::size_t>(std::count(library().calls.begin(), library().calls.end(), call));
}

TEST_CASE("devices are listed with the fields of a bench report") {
  const Fresh fresh;
  const std::vector<gpu::DeviceInfo> all = Runtime::devices();
  REQUIRE(all.size() == 2);
  CHECK(all[1].name == "Fake Two");
  CHECK(all[1].architecture == architecture);
  CHECK(all[1].driver == driver);
  CHECK(all[1].wave_width == 32);
  CHECK(all[1].multiprocessors == 7);
  CHECK(all[1].shared_bytes == 65536);
  CHECK(all[1].memory_bytes == std::size_t{24} << 30);
}

TEST_CASE("a missing device, driver or index is an error") {
  const Fresh fresh;
  SECTION("none") {
    library().failures["GetDeviceCount"] = no_device;
    CHECK(Runtime::devices().empty());
    const auto [id, text] = error_of([] { Runtime{}; });
    CHECK(id == "gpu.no-device");
    CHECK(contains(text, Api::vendor));
  }
  SECTION("a count of zero") {
    library().devices = 0;
    CHECK(error_of([] { Runtime{}; }).first == "gpu.no-device");
  }
  SECTION("an index outside") {
    for (const int index : {-1, 2}) {
      const auto [id, text] = error_of([index] { Runtime{index}; });
      CHECK(id == "gpu.no-device");
      CHECK(contains(text, "0 (Fake One), 1 (Fake Two)"));
    }
  }
}

TEST_CASE("opening a device reports missing code for it") {
  const Fresh fresh;
  SECTION("at the launch") { library().failures[in_turn] = no_code; }
  SECTION("at the wait") { library().failures["StreamSynchronize"] = no_code; }
  SECTION("code for another wave width") { library().compiled_width = 64; }
  const auto [id, text] = error_of([] { Runtime{1}; });
  CHECK(id == "gpu.wrong-device");
  CHECK(contains(text, "Fake Two"));
  CHECK(contains(text, architecture));
}

TEST_CASE("an allocation that fails reports the requested and the free memory") {
  const Fresh fresh;
  Runtime runtime;
  library().failures["Malloc"] = static_cast<int>(Api::out_of_memory);
  library().failures[Api::host_malloc] = static_cast<int>(Api::out_of_memory);
  library().free = (std::size_t{3} << 30) + (std::size_t{1} << 29);
  for (const bool host : {false, true}) {
    const auto [id, text] =
        error_of([&] { host ? runtime.allocate_host(std::size_t{8} << 30) : runtime.allocate(std::size_t{8} << 30); });
    CHECK(id == "gpu.out-of-memory");
    CHECK(contains(text, "requested 8.0 GiB"));
    CHECK(contains(text, "3.5 GiB of 24.0 GiB are free on Fake One"));
  }
}

TEST_CASE("every failing call is an error that names it") {
  const Fresh fresh;
  Runtime runtime;
  auto stream = runtime.make_stream();
  auto event = runtime.make_event(), later = runtime.make_event();
  runtime.begin_capture(stream);
  const auto graph = runtime.end_capture(stream);
  char memory[8] = {};

  const std::vector<std::pair<std::string, std::function<void()>>> actions = {
      {"GetDeviceCount", [] { Runtime::devices(); }},
      {"GetDeviceProperties", [] { Runtime::devices(); }},
      {"GetDevice", [&] { runtime.synchronize(stream); }},
      {"MemGetInfo", [&] { runtime.memory_free(); }},
      {"Malloc", [&] { runtime.allocate(8); }},
      {Api::host_malloc, [&] { runtime.allocate_host(8); }},
      {"StreamCreateWithFlags", [&] { runtime.make_stream(); }},
      {"EventCreateWithFlags", [&] { runtime.make_event(); }},
      {"MemcpyAsync", [&] { runtime.copy_in(memory, memory + 4, 4, stream); }},
      {"MemcpyAsync", [&] { runtime.copy_out(memory, memory + 4, 4, stream); }},
      {"MemcpyAsync", [&] { runtime.copy(memory, memory + 4, 4, stream); }},
      {"MemsetAsync", [&] { runtime.fill(memory, 1, 8, stream); }},
      {"EventRecord", [&] { runtime.record(event, stream); }},
      {"StreamWaitEvent", [&] { runtime.wait(event, stream); }},
      {"EventSynchronize", [&] { runtime.milliseconds(event, later); }},
      {"EventElapsedTime", [&] { runtime.milliseconds(event, later); }},
      {"StreamSynchronize", [&] { runtime.synchronize(stream); }},
      {"StreamQuery", [&] { runtime.idle(stream); }},
      {"OccupancyMaxActiveBlocksPerMultiprocessor", [&] { runtime.resident_blocks<Double>(); }},
      {"StreamBeginCapture", [&] { runtime.begin_capture(stream); }},
      {"StreamEndCapture", [&] { runtime.end_capture(stream); }},
      {"GraphInstantiate", [&] { runtime.begin_capture(stream), runtime.end_capture(stream); }},
      {"GraphLaunch", [&] { runtime.replay(graph, stream); }},
  };
  for (const auto& [call, action] : actions) {
    library().failures = {{call, refused}};
    const auto [id, text] = error_of(action);
    INFO(call << ": " << text);
    CHECK(id == "gpu.failed");
    CHECK(
        contains(text, std::string(Api::prefix) + call + " failed with FakeStatus (" + std::to_string(refused) + ")"));
    library().failures.clear();
  }
  SECTION("a device that cannot be made current") {
    Runtime other{1};
    auto elsewhere = other.make_stream();
    library().failures["SetDevice"] = refused;
    CHECK(contains(error_of([&] { other.synchronize(elsewhere); }).second, std::string(Api::prefix) + "SetDevice"));
    library().failures.clear();
  }
}

TEST_CASE("a launch has its grid and its arguments, and reports a rejection") {
  const Fresh fresh;
  Runtime runtime;
  auto stream = runtime.make_stream();
  float numbers[4] = {1, 2, 3, 4};
  library().on_launch = [&](const fake::Launch&, void** arguments) {
    Double::Args args;
    std::memcpy(&args, arguments[0], sizeof args);
    CHECK(args.numbers == numbers);
    CHECK(args.count == 5);
  };
  runtime.launch<Double>({numbers, 5}, stream);
  const fake::Launch launch = library().launches.back();
  CHECK(contains(launch.kernel, "Double"));
  CHECK(std::vector<unsigned>(launch.grid, launch.grid + 3) == std::vector<unsigned>{5, 2, 3});
  CHECK(std::vector<unsigned>(launch.block, launch.block + 3) == std::vector<unsigned>{32, 1, 1});

  library().failures[in_turn] = refused;
  const auto [id, text] = error_of([&] { runtime.launch<Double>({numbers, 5}, stream); });
  CHECK(id == "gpu.launch");
  CHECK(contains(text, "5 x 2 x 3 blocks of 32 threads"));
  CHECK(contains(text, std::string(Api::prefix) + in_turn));
  library().failures[in_turn] = no_code;
  CHECK(error_of([&] { runtime.launch<Double>({numbers, 5}, stream); }).first == "gpu.wrong-device");
}

TEST_CASE("a graph is captured once and replayed with the same pointers") {
  const Fresh fresh;
  Runtime runtime;
  auto stream = runtime.make_stream();
  char from[4] = {1, 2, 3, 4}, to[4] = {};
  runtime.begin_capture(stream);
  runtime.copy_in(to, from, 4, stream);
  CHECK(to[0] == 0);
  const auto graph = runtime.end_capture(stream);
  CHECK(to[0] == 0);
  runtime.replay(graph, stream);
  CHECK(to[3] == 4);
  from[3] = 9;
  runtime.replay(graph, stream);
  CHECK(to[3] == 9);
  CHECK(library().live == 2);  // the stream and the instantiated graph; the captured graph is destroyed

  SECTION("a failed capture leaves the stream usable") {
    runtime.begin_capture(stream);
    library().failures["StreamEndCapture"] = refused;
    CHECK(error_of([&] { runtime.end_capture(stream); }).first == "gpu.failed");
    library().failures.clear();
    runtime.fill(to, 7, 4, stream);
    CHECK(to[0] == 7);
  }
}

TEST_CASE("copies and fills reach memory; empty ones make no call") {
  const Fresh fresh;
  Runtime runtime;
  auto stream = runtime.make_stream();
  char* memory = static_cast<char*>(runtime.allocate(16));
  runtime.fill(memory, 5, 16, stream);
  char back[16] = {};
  runtime.copy_out(back, memory, 16, stream);
  CHECK(back[15] == 5);
  const std::size_t before = calls_of("MemcpyAsync@0");
  runtime.copy_in(nullptr, nullptr, 0, stream);
  CHECK(calls_of("MemcpyAsync@0") == before);
  runtime.release(memory);
  runtime.release(nullptr);
  void* nothing = runtime.allocate(0);
  CHECK(nothing != nullptr);
  runtime.release(nothing);
}

TEST_CASE("work is sent to the object's device, for any current device of the thread") {
  const Fresh fresh;
  Runtime first{0}, second{1};
  library().calls.clear();
  library().current_device = 0;
  auto stream = second.make_stream();
  auto event = second.make_event();
  void* memory = second.allocate(4);
  second.fill(memory, 0, 4, stream);
  second.launch<Double>({nullptr, 1}, stream);
  second.synchronize(stream);
  second.record(event, stream);
  second.synchronize(event);
  for (const char* call : {"StreamCreateWithFlags", "Malloc", "MemsetAsync", in_turn, "StreamSynchronize",
                           "EventRecord", "EventSynchronize"}) {
    INFO(call);
    CHECK(calls_of(std::string(call) + "@1") == 1);
  }
  CHECK(library().current_device == 0);  // as it was
  CHECK(library().launches.back().device == 1);
  second.release(memory);
  static_cast<void>(first);
}

TEST_CASE("a stream is idle or busy") {
  const Fresh fresh;
  Runtime runtime{1};
  auto stream = runtime.make_stream();
  CHECK(runtime.idle(stream));
  library().failures["StreamQuery"] = static_cast<int>(Api::not_ready);
  CHECK_FALSE(runtime.idle(stream));
  CHECK(calls_of("StreamQuery@1") == 2);
}

TEST_CASE("objects of two devices cannot be combined") {
  const Fresh fresh;
  Runtime first{0}, second{1};
  auto stream = first.make_stream(), foreign = second.make_stream();
  auto event = first.make_event(), foreign_event = second.make_event();
  second.begin_capture(foreign);
  const auto foreign_graph = second.end_capture(foreign);
  library().calls.clear();
  char memory[4];
  const std::vector<std::function<void()>> actions = {
      [&] { first.copy_in(memory, memory, 4, foreign); },
      [&] { first.copy_out(memory, memory, 4, foreign); },
      [&] { first.copy(memory, memory, 4, foreign); },
      [&] { first.fill(memory, 0, 4, foreign); },
      [&] { first.record(event, foreign); },
      [&] { first.record(foreign_event, stream); },
      [&] { first.wait(foreign_event, stream); },
      [&] { first.milliseconds(event, foreign_event); },
      [&] { first.milliseconds(foreign_event, event); },
      [&] { first.synchronize(foreign); },
      [&] { first.idle(foreign); },
      [&] { first.synchronize(foreign_event); },
      [&] { first.begin_capture(foreign); },
      [&] { first.end_capture(foreign); },
      [&] { first.replay(foreign_graph, stream); },
      [&] {
        first.launch<Double>({nullptr, 1}, foreign);
      },
  };
  for (const auto& action : actions) CHECK(error_of(action).first == "gpu.other-device");
  CHECK(library().calls.empty());  // no call was made
}

TEST_CASE("streams can be moved, and a moved-from stream is rejected") {
  const Fresh fresh;
  Runtime runtime;
  auto stream = runtime.make_stream();
  auto other = std::move(stream);
  runtime.synchronize(other);
  CHECK(error_of([&] { runtime.synchronize(stream); }).first == "gpu.failed");  // NOLINT: use after move is tested
  stream = std::move(other);
  runtime.synchronize(stream);
}

TEST_CASE("a stream that the vendor has lost, with work in flight, is an error; other streams continue") {
  const Fresh fresh;
  Runtime runtime;
  char memory[4] = {};
  {
    auto lost = runtime.make_stream();
    runtime.fill(memory, 1, 4, lost);
    for (const char* call : {"MemsetAsync", "MemcpyAsync", "StreamSynchronize", "GraphLaunch", in_turn}) {
      library().failures[call] = lost_handle;
    }
    const auto expect = [](auto action, const char* call) {
      const auto [id, text] = error_of(action);
      CHECK((id == "gpu.failed" || id == "gpu.launch"));
      CHECK(contains(text, std::string(Api::prefix) + call + " failed with"));
    };
    expect([&] { runtime.fill(memory, 2, 4, lost); }, "MemsetAsync");
    expect([&] { runtime.copy_out(memory, memory + 2, 2, lost); }, "MemcpyAsync");
    expect([&] { runtime.launch<Double>({nullptr, 1}, lost); }, in_turn);
    expect([&] { runtime.synchronize(lost); }, "StreamSynchronize");
  }
  library().failures.clear();
  auto stream = runtime.make_stream();
  runtime.fill(memory, 3, 4, stream);
  runtime.synchronize(stream);
  CHECK(memory[3] == 3);
}

}  // namespace
