// How the runtimes of NVIDIA and AMD start kernels, against a library that records calls: after each other, before the
// one before has ended, or with all blocks at once. Compiled as CUDA and as HIP; needs no device.
#include <catch2/catch.hpp>
#include <string>

#include "gpu/fake/vendor.hpp"

// nvcc does not launch a kernel of an unnamed namespace.
namespace launches_test {
struct Alone {
  struct Args {
    int blocks;
  };
  struct Shared {};
  static constexpr int max_block = 64;
  static slm::gpu::Grid grid(const Args& args, int wave_width) { return {.x = args.blocks, .threads = wave_width}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane, const Args&, Shared&) const {}
};
struct Together : Alone {
  static constexpr bool cooperative = true;
};
}  // namespace launches_test

namespace {

using namespace slm;
using fake::Api;
using fake::Fresh;
using fake::library;
using fake::Runtime;
using launches_test::Alone;
using launches_test::Together;

TEST_CASE("a kernel may begin before the one before it has ended where its code waits and the driver can do that") {
  const Fresh fresh;
  const auto dependent = [](bool asked_for) {
    library().launches.clear();
    Runtime runtime(0, asked_for);
    auto stream = runtime.make_stream();
    runtime.launch<Alone>({1}, stream);
    CHECK_FALSE(library().launches.front().dependent);  // the probe, by which it is known
    return library().launches.back().dependent;
  };
  CHECK_FALSE(dependent(true));
  library().code_waits = true;
  CHECK(dependent(true) == (std::string(Api::name) == "cuda"));
  CHECK_FALSE(dependent(false));
  library().driver_version = 12020;
  CHECK_FALSE(dependent(true));
}

TEST_CASE("a kernel whose blocks wait for each other is started with all of them, as many as the device holds") {
  const Fresh fresh;
  library().code_waits = true;  // other kernels are dependent launches, where there are any
  Runtime runtime;
  CHECK(runtime.resident_blocks<Together>() == 7 * (512 / Together::max_block));
  auto stream = runtime.make_stream();
  runtime.launch<Together>({3}, stream);
  CHECK(library().launches.back().together);
  CHECK_FALSE(library().launches.back().dependent);
  runtime.launch<Alone>({3}, stream);
  CHECK_FALSE(library().launches.back().together);

  const char* const call = Api::launch(gpu::Start::together);
  library().failures[call] = 1;
  CHECK_THROWS_WITH(runtime.launch<Together>({3}, stream),
                    Catch::Contains("gpu.launch") && Catch::Contains(std::string(Api::prefix) + call));
  library().failures.clear();
  library().cooperative = false;
  CHECK(Runtime().resident_blocks<Together>() == 0);
}

}  // namespace
