// Speculation gives the plain text on emulated lanes, with draft and target on one device or on two kinds.
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_models.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Lanes64;

TEST_CASE("draft and target on the processor or on 64 lanes") {
  const auto target = fixture("models/llama-sharded-bf16"), draft = fixture("models/llama-mha3h");
  check_speculation(draft, Lanes64{}, target, Lanes64{});
  check_speculation(draft, Cpu{}, target, Lanes64{});
  check_speculation(target, Lanes64{}, draft, Cpu{});
}

TEST_CASE("a mixture of experts on lanes: speculative text equals plain text") {
  const std::string name = GENERATE("qwen3moe", "mixtral", "olmoe");
  CAPTURE(name);
  const auto folder = fixture("models/" + name);
  check_speculation(folder, Lanes64{}, folder, Lanes64{});
}
