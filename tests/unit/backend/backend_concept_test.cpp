// The Backend concept and a minimal model of it; the errors of backend::Cpu's constructor and memory.
#include <catch2/catch.hpp>
#include <limits>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/formats/format.hpp"
#include "support/errors.hpp"
#include "support/fake_backend.hpp"

using namespace slm;
using backend::Cpu;
using backend::Isa;
using testing::error_id;
using testing::FakeBackend;
using testing::FakeStep;

static_assert(Backend<FakeBackend>);
static_assert(Backend<Cpu>);
static_assert(Backend<backend::Reference>);
static_assert(!Backend<int>);

TEST_CASE("the fake backend records its calls") {
  FakeBackend device, copy = device;
  const Tensor tensor{"w", DType::f32, {7, 3}, nullptr, 0};
  const auto weight = copy.pack<Fp32>({{tensor, tensor}});
  CHECK(weight.out == 14);
  std::vector<float> x(6);
  const std::vector<PlanRow> rows{{.token = 4}, {.token = 9, .position = 1, .parent = 0}};
  FakeStep step = copy.begin({.rows = rows, .sequences = {}, .pages = {}, .outputs = {}, .draws = {}});
  step.embed(weight, View<float, 2>{x.data(), 2, 3});
  CHECK(x == std::vector<float>{4, 4, 4, 9, 9, 9});
  std::vector<float> logits(14);
  step.logits(View<const float, 2>{x.data(), 2, 3}, {}, Linear{weight}, View<float, 2>{logits.data(), 2, 7});
  CHECK(logits[5] == 1);
  CHECK(logits[7 + 10 % 7] == 1);
  CHECK(*device.calls == std::vector<std::string>{"embed rows=2", "logits rows=2"});
}

TEST_CASE("the number of threads is checked") {
  CHECK(Cpu{}.threads() >= 1);
  CHECK(Cpu{3}.threads() == 3);
  CHECK(Cpu{{.threads = 2}}.threads() == 2);
  CHECK(error_id([] { Cpu{0}; }) == "backend.invalid-threads");
  CHECK(error_id([] { Cpu{-1}; }) == "backend.invalid-threads");
  CHECK(error_id([] { Cpu{100000}; }) == "backend.invalid-threads");
  CHECK(error_id([] { Cpu{{.threads = -5}}; }) == "backend.invalid-threads");
}

TEST_CASE("the instruction set is the machine's best, or the requested one") {
  CHECK(Cpu{1}.isa() == backend::available_isas().back());
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (backend::is_available(isa)) {
      CHECK(Cpu{{.threads = 1, .isa = isa}}.isa() == isa);
    } else {
      CHECK(error_id([&] { Cpu{{.threads = 1, .isa = isa}}; }) == "backend.unsupported-instruction-set");
    }
  }
}

TEST_CASE("memory is zero and lazy, and a failed allocation is an error") {
  Cpu device{1};
  const auto buffer = device.allocate<float>(1000);
  REQUIRE(buffer.size() == 1000);
  for (std::size_t i = 0; i < buffer.size(); ++i) REQUIRE(buffer.data()[i] == 0);
  CHECK(device.allocate<float>(0).size() == 0);
  // 64 GiB of address space: a long context that is never used.
  auto huge = device.allocate<float>(std::size_t{1} << 34);
  CHECK(reinterpret_cast<std::uintptr_t>(huge.data()) % (std::size_t{2} << 20) == 0);  // where a huge page can begin
  huge.data()[huge.size() - 1] = 1;
  CHECK(huge.data()[huge.size() / 2] == 0);
  CHECK(error_id([&] { device.allocate<float>(std::numeric_limits<std::size_t>::max()); }) == "backend.out-of-memory");
  CHECK(error_id([&] { device.allocate<float>(std::size_t{1} << 60); }) == "backend.out-of-memory");
  const std::vector<float> host{1, 2, 3};
  const auto copy = device.upload(host.data(), host.size());
  CHECK(std::vector<float>(copy.data(), copy.data() + copy.size()) == host);
}

TEST_CASE("weights of the format's own type are used in place") {
  std::vector<bfloat16_t> stored(12);
  const Tensor tensor{"w", DType::bf16, {3, 4}, reinterpret_cast<const std::byte*>(stored.data()), 24};
  Cpu device{1};
  CHECK(device.pack<Bf16>({{tensor}}).row(0) == stored.data());
  CHECK(static_cast<const void*>(device.pack<Fp32>({{tensor}}).row(0)) != stored.data());
}
