// Adapters on a GPU backend, real or emulated: the results of Reference, the same bits as alone, and speculation that
// changes nothing.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "slm/adapters.hpp"
#include "support/adapted_texts.hpp"
#include "support/gpu_models.hpp"

namespace slm::testing {

/// An adapter of all modules, with several texts on both. The fixtures' tolerance, for logits up to ten, scales with
/// the logits.
template <class Device>
void check_adapted_fixture(const std::string& name, Device device, std::uint64_t seed) {
  const Checkpoint checkpoint(fixture("models/" + name));
  const DType types[] = {DType::f32, DType::bf16, DType::f16};
  const TemporaryFolder folder;
  write_random_adapter(folder.path(), checkpoint, {.seed = seed, .size = 0.5f, .type = types[seed % 3]});
  const AnyModel model = load(checkpoint.folder(), device);
  const AnyModel plain = load(checkpoint.folder(), backend::Reference{});
  const auto text = some_text(seed, std::min(12, model.info().context), model.info().vocab);
  const auto found = logits_alone(model, text, load_adapter(folder.path(), model));
  const auto expected = logits_alone(plain, text, load_adapter(folder.path(), plain));
  CAPTURE(name, Device::name);
  CHECK(distance(found, expected) < logit_tolerance(checkpoint) / 10);
  CHECK(distance(found, logits_alone(model, text, nullptr)) > 1e-2);
}

/// Sequences with and without adapters of all ranks and types, in batches that grow across the boundary of both
/// variants of products, recorded and not.
template <class Device>
void check_adapted_batches(const std::string& name, Device device, int count, int length, std::uint64_t seed) {
  const Checkpoint checkpoint(fixture("models/" + name));
  const AnyModel model = load(checkpoint.folder(), device);
  const auto adapters = some_adapters(model, checkpoint);
  const MixedOutcome outcome = run_mixed(model, adapters, count, std::min(length, model.info().context), seed);
  CAPTURE(name, count, Device::name);
  CHECK(outcome.compared > count);
  CHECK(outcome.wrong == 0);
}

/// A draft without, and a target with an adapter.
template <class Device>
void check_adapted_speculation(const std::string& draft, const std::string& target, Device device) {
  const Checkpoint checkpoint(fixture("models/" + target));
  check_speculation_of([&] { return load(fixture("models/" + draft), device); },
                       [&] { return load(checkpoint.folder(), device); },
                       [&](const AnyModel& model) { return some_adapters(model, checkpoint)[1]; });
}

/// A base of four bits: as close to Reference as without an adapter, in batches and as a target. Activations are
/// rounded equally with and without an adapter, so the errors have the same size.
template <class Device>
void check_adapted_four_bits(Device device) {
  const TemporaryFolder folder;
  const std::filesystem::path original = fixture("models/llama-mha3h");
  quantized(Checkpoint(original), {.layout = Int4Layout::awq_gemm, .group = -1}).write(folder.path());
  const Checkpoint checkpoint(folder.path());
  const auto make = [&] { return AnyModel(load(folder.path(), device)); };
  const auto adapters_of = [&](const AnyModel& model) { return some_adapters(model, checkpoint); };
  const AnyModel model = make(), plain = load(folder.path(), backend::Reference{});
  const auto adapters = adapters_of(model);
  const auto text = some_text(6, 12, model.info().vocab);
  const auto found = logits_alone(model, text, adapters[1]), bare = logits_alone(model, text, nullptr);
  const double rounding = distance(bare, logits_alone(plain, text, nullptr));
  const double adapted = distance(found, logits_alone(plain, text, adapters_of(plain)[1]));
  CAPTURE(rounding, adapted, distance(found, bare));
  CHECK(adapted < 3 * rounding);
  CHECK(distance(found, bare) > 10 * rounding);
  CHECK(run_mixed(model, adapters, 5, 24, 6).wrong == 0);
  check_speculation_of([&] { return load(original, device); }, make,
                       [&](const AnyModel& target) { return adapters_of(target)[0]; });
}

}  // namespace slm::testing
