// Models with layers of different shapes, residual streams or latent attention on emulated lanes: batches, persistent
// steps, and speculation.
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_batches.hpp"
#include "support/gpu_models.hpp"
#include "support/shaped_configs.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::GpuOptions;
using backend::Lanes32;
using backend::Lanes64;

namespace {

const std::vector<std::string> shaped{"gemma4-e2b", "gemma4-moe", "gemma3n", "deepseek-v2-lite", "deepseek-v3"};

void check_rows(const std::string& name) {
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes32{}, Lanes32{1}, 9, 7);
}

void check_pairs(const std::string& name) {
  CAPTURE(name);
  const auto folder = fixture("models/" + name);
  check_speculation(folder, Cpu{}, folder, Lanes32{});
  check_speculation(folder, Lanes64{}, folder, Lanes64{});
}

}  // namespace

TEST_CASE("on lanes a row of a model with layers of different shapes has the same bits as alone") {
  check_rows(GENERATE("gemma4-moe", "deepseek-v3"));
}

TEST_CASE("on lanes a row of other models with layers of different shapes has the same bits as alone", "[long]") {
  check_rows(GENERATE("gemma4-e2b", "gemma3n", "deepseek-v2-lite"));
}

TEST_CASE("on 64 lanes a row of a model with layers of different shapes has the same bits as alone", "[long]") {
  const std::string name = GENERATE(from_range(shaped));
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes64{1}, Lanes64{}, 5, 8);
}

TEST_CASE("steps of layers of different shapes have the same bits where steps are persistent kernels") {
  const std::string name = GENERATE(from_range(shaped));
  CAPTURE(name);
  const Lanes32 staying(GpuOptions{.persistent_steps = true});
  check_same_steps(fixture("models/" + name), Lanes32{1}, staying, {.weights = WeightType::bf16});
}

TEST_CASE("heads of 512 dimensions, and latents of 576 numbers, on lanes") {
  Json heads = gemma4_config(false), latents = latent_config(160);
  heads["global_head_dim"] = 512;
  latents.merge_patch(
      {{"num_hidden_layers", 2}, {"first_k_dense_replace", 1}, {"kv_lora_rank", 512}, {"qk_rope_head_dim", 64}});
  for (const Json& config : {heads, latents}) {
    CAPTURE(config.at("model_type").get<std::string>());
    const TemporaryFolder folder;
    write_random_weights(folder.path(), config, 3);
    CHECK(worst_difference(folder.path(), Lanes32{}) < 0.05);
    CHECK(worst_difference(folder.path(), Lanes64{1}) < 0.05);
  }
}

TEST_CASE("models with layers of different shapes on lanes: speculation gives the plain text") {
  check_pairs(GENERATE("gemma3n", "deepseek-v3"));
}

TEST_CASE("other models with layers of different shapes on lanes: speculation gives the plain text", "[long]") {
  check_pairs(GENERATE("gemma4-e2b", "gemma4-moe", "deepseek-v2-lite"));
}
