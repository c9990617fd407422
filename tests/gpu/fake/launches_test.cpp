// Kernel launches of NVIDIA's and AMD's runtimes, against a library that records calls: one after another, overlapping,
// or with all blocks resident. Compiled as CUDA and as HIP; needs no device.
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

TEST_CASE("a kernel may overlap the previous one if its code waits and the driver supports it") {
  const Fresh fresh;
  const auto dependent = [](bool asked_for) {
    library().launches.clear();
    Runtime runtime(0, asked_for);
    auto stream = runtime.make_stream();
    runtime.launch<Alone>({1}, stream);
    CHECK_FALSE(library().launches.front().dependent);  // the probe that detects this
    return library().launches.back().dependent;
  };
  CHECK_FALSE(dependent(true));
  library().code_waits = true;
  CHECK(dependent(true) == (std::string(Api::name) == "cuda"));
  CHECK_FALSE(dependent(false));
  library().driver_version = 12020;
  CHECK_FALSE(dependent(true));
}

TEST_CASE("a kernel whose blocks wait for each other is launched with all resident blocks of the device") {
  const Fresh fresh;
  library().code_waits = true;  // other kernels are dependent launches, if supported
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
