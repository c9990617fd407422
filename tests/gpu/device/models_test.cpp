// Whole models on a device: the fixtures' logits, the same bits for any chunks of a text, and pairs with one model on
// the CPU.
#include "gpu/device/device.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/model/load_definition.hpp"
#include "support/gpu_adapters.hpp"
#include "support/gpu_batches.hpp"
#include "support/gpu_models.hpp"
#include "support/hybrid_fixtures.hpp"
#include "support/newer_fixtures.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("the fixtures' logits on the device") {
  if (no_device()) return;
  for (const std::string& name : gpu_fixtures) {
    CAPTURE(name);
    check_fixture(fixture("models/" + name), Device{});
  }
}

TEST_CASE("on the device a row's bits do not depend on other sequences") {
  if (no_device()) return;
  for (const std::string name : {"llama-mha3h", "mistral-swa8", "phi3-longrope", "opt-postln-proj"}) {
    CAPTURE(name);
    for (const int count : {2, 12, 40}) check_batches(fixture("models/" + name), Device{}, Device{}, count, 9);
  }
}

TEST_CASE("mixtures of experts on the device give the expected logits, and a row's bits do not depend on others") {
  if (no_device()) return;
  for (const std::string& name : expert_traits) {
    CAPTURE(name);
    check_fixture(fixture("models/" + name), Device{});
  }
  for (const std::string name : {"qwen3moe", "olmoe", "gpt-oss"}) {
    CAPTURE(name);
    check_batches(fixture("models/" + name), Device{}, Device{}, 12, 9);
    check_speculation(fixture("models/" + name), Device{}, fixture("models/" + name), Device{});
  }
}

TEST_CASE(
    "layers of different shapes on the device give the expected logits, and a row's bits do not depend on others") {
  if (no_device()) return;
  for (const std::string name : {"gemma4-e2b", "gemma4-moe", "gemma3n", "deepseek-v2-lite", "deepseek-v3"}) {
    CAPTURE(name);
    check_fixture(fixture("models/" + name), Device{});
    check_batches(fixture("models/" + name), Device{}, Device{}, 12, 9);
    check_speculation(fixture("models/" + name), Device{}, fixture("models/" + name), Device{});
  }
}

TEST_CASE("recurrent layers on the device give the expected logits, and a row's bits do not depend on others") {
  if (no_device()) return;
  for (const std::string& name : hybrid_fixtures) {
    CAPTURE(name);
    check_fixture(fixture("models/" + name), Device{});
  }
  for (const std::string name : {"lfm2", "qwen35", "falcon-h1", "nemotron-h-moe"}) {
    CAPTURE(name);
    check_batches(fixture("models/" + name), Device{}, Device{}, 12, 9);
    check_speculation(fixture("models/" + name), Device{}, fixture("models/" + name), Device{});
  }
}

TEST_CASE("on the device an adapter has the results of Reference, and the same bits in any batch") {
  if (no_device()) return;
  std::uint64_t seed = 0;
  for (const char* name : adapted_fixtures) check_adapted_fixture(name, Device{}, ++seed);
  for (const char* name : {"llama3-gqa-scaled-tied", "gpt2", "phi3-swa7", "opt-postln-proj"}) {
    check_adapted_batches(name, Device{}, 9, 60, 3);
  }
  check_adapted_speculation("llama-mha3h", "llama-mha3h", Device{});
  check_adapted_four_bits(Device{});
}

TEST_CASE("on the device persistent steps have the bits of launches, and speculation with them gives plain text") {
  if (no_device()) return;
  const Device staying(backend::GpuOptions{.persistent_steps = true});
  const LoadOptions bf16{.weights = WeightType::bf16};
  for (const std::string& name : gpu_fixtures) {
    CAPTURE(name);
    check_same_steps(fixture("models/" + name), Device{}, staying, bf16);
  }
  const auto make = [&] { return load(fixture("models/llama-mha3h"), staying, bf16); };
  check_speculation_of(make, make);
}

TEST_CASE("four-bit models on the device") {
  if (!no_device()) check_four_bits(Device{});
}

TEST_CASE("speculative text is plain text, with either model on the CPU") {
  if (no_device()) return;
  const auto model = fixture("models/llama-mha3h");
  check_speculation(model, Device{}, model, Device{});
  check_speculation(model, backend::Cpu{2}, model, Device{});
  check_speculation(model, Device{}, model, backend::Cpu{2});
}
