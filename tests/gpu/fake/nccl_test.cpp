// ranks::Nccl with the vendors' runtimes, compiled as CUDA for NCCL and as HIP for RCCL: the devices and streams passed
// to the library. Needs no device and neither library.
#include "slm/ranks/nccl.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gpu/fake/vendor.hpp"
#include "nccl/fake_nccl.hpp"
#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/split.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"

namespace {

using namespace slm;
using namespace slm::testing;

using fake::Api;
using fake::Runtime;
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

TEST_CASE("NCCL is called with the rank's device current, and with the runtime's stream") {
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

TEST_CASE("a stream that fails or never ends aborts the communicator") {
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

TEST_CASE("a step over ranks uses one stream for its products and NCCL's gathers, and waits only at its end") {
  const Fresh fresh;
  constexpr int width = 32;
  {
    Runtime runtime{1};
    const Nccl nccl(ranks::Alone{}, runtime);
    backend::Split<backend::Gpu<Runtime>, Nccl> device(backend::Gpu<Runtime>(runtime), nccl);
    const std::vector<float> numbers(3 * width * width, 1.0f);
    const auto weight_of = [&](std::int64_t out) {
      const Tensor tensor{"w",
                          DType::f32,
                          {out, width},
                          reinterpret_cast<const std::byte*>(numbers.data()),
                          static_cast<std::size_t>(out * width) * sizeof(float)};
      return device.pack<Bf16>(std::span(&tensor, 1));
    };
    const auto square = weight_of(width), fused = weight_of(3 * width);
    const auto bias = device.upload(numbers.data(), 3 * width);
    const PlanRow row{.token = 1};
    const PlanSequence sequence{.rows = 1};
    const int output = 0;
    for (const bool again : {false, true}) {  // the first time memory grows
      fake::library().launches.clear();
      fake::library().calls.clear();
      fake::nccl::library().calls.clear();
      auto step = device.begin({.rows = {&row, 1}, .sequences = {&sequence, 1}, .outputs = {&output, 1}, .draws = {}});
      const auto x = step.scratch(0, width), q = step.scratch(1, width), narrow = step.scratch(2, width / 2);
      step.embed(square, x);
      step.qkv(x, {}, Linear{fused, bias.data()}, {}, {.query = 1, .kv = 1, .dim = width}, {}, q);
      step.project(q, Linear{square, bias.data()}, x);
      step.gated_mlp(x, {}, Linear{square}, narrow);
      std::vector<float> logits(width);
      step.logits(x, {}, Linear{square}, {logits.data(), 1, width});
      if (!again) continue;
      const auto& calls = fake::library().calls;
      CHECK(std::count(calls.begin(), calls.end(), "StreamSynchronize@1") == 1);  // at the end: the copy of the logits
      std::set<void*> streams;
      for (const auto& call : fake::nccl::library().calls) {
        CHECK(call.function == "ncclAllGather");
        streams.insert(call.stream);
      }
      CHECK(fake::nccl::library().calls.size() == 5);
      CHECK(streams.size() == 1);
      const auto launches = [](const std::string& kernel) {
        const auto& all = fake::library().launches;
        return std::count_if(all.begin(), all.end(), [&](const fake::Launch& launch) {
          return launch.device == 1 && launch.kernel.find(kernel) != std::string::npos;
        });
      };
      CHECK(launches("Embed") == 1);
      CHECK(launches("SpreadRows") == 1);
      CHECK(launches("ProductVectors") == 4);
      CHECK(launches("TakeColumns") == 3);  // of two biases, and of the residual stream
      CHECK(launches("SpreadColumns") == 4);
      CHECK(launches("ShapeQkv") == 1);
    }
  }
}

}  // namespace
