// ranks::Nccl with the vendors' runtimes, compiled as CUDA for NCCL and as HIP for RCCL: devices and streams that it
// gives them. Needs no device, and neither library.
#include "slm/ranks/nccl.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/fake/fake.hpp"
#include "nccl/fake_nccl.hpp"
#include "slm/backend/gpu/runtime/runtime_cuda.hpp"
#include "slm/backend/gpu/runtime/runtime_hip.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"

namespace {

using namespace slm;
using namespace slm::testing;

#if defined(__CUDACC__)
using Api = gpu::CudaApi;
using Runtime = backend::CudaRuntime;
#else
using Api = gpu::HipApi;
using Runtime = backend::HipRuntime;
#endif
using Nccl = ranks::Nccl<Runtime, ranks::Alone>;
static_assert(ranks::Communicator<ranks::Nccl<Runtime, ranks::Threads>>);

struct Fresh {
  Fresh() {
    fake::reset();
    fake::nccl::reset();
    fake::nccl::library().enqueue = [](void*, const std::function<bool()>& work) { REQUIRE(work()); };
    fake::nccl::library().device = [] { return fake::library().current_device; };
  }
  ~Fresh() {
    CHECK(fake::nccl::library().breaches == std::vector<std::string>{});
    CHECK(fake::nccl::library().live == 0);
    CHECK(fake::library().live == 0);
  }
};

TEST_CASE("NCCL is called with the rank's device current, and gets the runtime's stream") {
  const Fresh fresh;
  Runtime runtime{1};
  auto stream = runtime.make_stream();
  {
    const Nccl nccl(ranks::Alone{}, runtime);
    std::vector<std::uint64_t> numbers{3, 4}, all(2);
    const auto bytes = std::as_writable_bytes(std::span(numbers));
    nccl.all_gather(bytes, std::vector<std::size_t>{bytes.size()}, std::as_writable_bytes(std::span(all)), stream);
    nccl.broadcast(bytes, 0, stream);
    nccl.all_reduce(numbers, ranks::Reduction::max, stream);
    nccl.wait(stream);
    CHECK(all == numbers);
  }
  CHECK(fake::library().current_device == 0);  // as it was
  int with_stream = 0;
  for (const auto& call : fake::nccl::library().calls) with_stream += call.stream == stream.handle();
  CHECK(with_stream == 3);
}

TEST_CASE("a stream that fails, or never ends, ends the communicator") {
  const Fresh fresh;
  Runtime runtime;
  auto stream = runtime.make_stream();
  const auto id_when = [&](int status) {
    const Nccl nccl(ranks::Alone{}, runtime, std::chrono::milliseconds(20));
    fake::library().failures["StreamQuery"] = status;
    const std::string id = error_id([&] { nccl.wait(stream); });
    fake::library().failures.clear();
    CHECK(fake::nccl::library().calls.back().function == "ncclCommAbort");
    return id;
  };
  CHECK(id_when(static_cast<int>(Api::out_of_memory)) == "gpu.failed");
  CHECK(id_when(static_cast<int>(Api::not_ready)) == "ranks.nccl");
}

}  // namespace
