// Adapters on emulated lanes of both widths.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_adapters.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;
using backend::Lanes64;

TEST_CASE("in every family an adapter has the same results on lanes as on Reference") {
  std::uint64_t seed = 0;
  for (const char* name : adapted_fixtures) {
    ++seed;
    if (seed % 2 == 0) {
      check_adapted_fixture(name, Lanes32{static_cast<int>(seed / 2 % 2)}, seed);
    } else {
      check_adapted_fixture(name, Lanes64{static_cast<int>(seed / 2 % 2)}, seed);
    }
  }
}

TEST_CASE("with layers of different shapes an adapter has the same results on lanes as on Reference") {
  std::uint64_t seed = 40;
  for (const char* name : {"gemma3n", "gemma4-e2b", "gemma4-moe", "deepseek-v3"})
    check_adapted_fixture(name, Lanes32{}, ++seed);
}

TEST_CASE("on 32 lanes sequences with and without adapters of any rank share a batch with unchanged bits") {
  check_adapted_batches("llama3-gqa-scaled-tied", Lanes32{}, 9, 40, 3);
  check_adapted_batches("gpt2", Lanes32{1}, 5, 30, 4);
  check_adapted_batches("opt-postln-proj", Lanes32{}, 7, 30, 5);
}

TEST_CASE("on 64 lanes sequences with and without adapters of any rank share a batch with unchanged bits", "[long]") {
  check_adapted_batches("qwen3-qknorm-headdim", Lanes64{1}, 9, 40, 3);
  check_adapted_batches("phi3-swa7", Lanes64{}, 7, 30, 4);
}

TEST_CASE("the test detects exchanged adapters on lanes") {
  const Checkpoint checkpoint(fixture("models/llama-mha3h"));
  for (const AnyModel& model : {load(checkpoint.folder(), Lanes32{1}), load(checkpoint.folder(), Lanes64{})}) {
    const auto adapters = some_adapters(model, checkpoint);
    CHECK(run_mixed(model, adapters, 4, 20, 2).wrong == 0);
    CHECK(run_mixed(model, adapters, 4, 20, 2, true).wrong > 0);
  }
}

TEST_CASE("speculation with an adapted target gives its plain text on lanes") {
  check_adapted_speculation("llama-mha3h", "llama-mha3h", Lanes32{});
  check_adapted_speculation("gpt2", "gpt2", Lanes64{});
}
