// Models with persistent steps, on emulated lanes: the same bits as with launches, and speculation changes nothing.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_models.hpp"

using namespace slm;
using namespace slm::testing;
using backend::GpuOptions;
using backend::Lanes32;
using backend::Lanes64;

namespace {

template <class Device>
Device staying(int order) {
  return Device(GpuOptions{.device = order, .persistent_steps = true});
}

const LoadOptions bf16{.weights = WeightType::bf16};

/// With floating point in bfloat16.
void write_four_bits(const std::filesystem::path& folder) {
  const Checkpoint original(fixture("models/llama-sharded-bf16"));
  quantized(original, {.layout = Int4Layout::awq_gemm, .group = -1}).write(folder);
}

template <class Device>
void check_same_bits(const std::filesystem::path& folder, const LoadOptions& options = {}) {
  for (const int order : {0, 1}) check_same_steps(folder, Device(1 - order), staying<Device>(order), options);
}

}  // namespace

TEST_CASE("persistent steps have the bits of launches in every family") {
  for (const std::string& name : gpu_fixtures) {
    CAPTURE(name);
    check_same_bits<Lanes32>(fixture("models/" + name), bf16);
  }
  check_same_bits<Lanes64>(fixture("models/qwen3-qknorm-headdim"), bf16);
  check_same_bits<Lanes64>(fixture("models/mpt-alibi-3h"), bf16);
}

TEST_CASE("persistent steps have the bits of launches in every format of weights and of pages") {
  const auto model = fixture("models/llama-mha3h");
  for (const WeightType weights : {WeightType::f32, WeightType::f16, WeightType::bf16}) {  // f32: by launches
    check_same_bits<Lanes32>(model, {.weights = weights});
    check_same_bits<Lanes64>(model, {.weights = weights});
  }
  check_same_bits<Lanes32>(model, {.weights = WeightType::bf16, .cache_format = KvFormat::int8});  // by launches
  check_same_bits<Lanes32>(fixture("gguf/all-types.gguf"));
}

TEST_CASE("4-bit layers and a bfloat16 embedding are two launches, with the bits of launches") {
  const TemporaryFolder folder;
  write_four_bits(folder.path());
  check_same_bits<Lanes32>(folder.path());
  check_same_bits<Lanes64>(folder.path());
  Lanes32 device = staying<Lanes32>(0);
  Session text(load(folder.path(), device));
  const int logits = 1;
  for (int i = 0; i < 3; ++i) {
    const long before = device.runtime().launches();
    text.forward(std::vector<Token>{7}, 1);
    if (i > 0) CHECK(device.runtime().launches() - before == 2 + logits);
  }
}

TEST_CASE("speculation with persistent steps gives plain text, alone and beside launches") {
  const auto target = fixture("models/llama-sharded-bf16"), draft = fixture("models/llama-mha3h");
  const auto on = [](const std::filesystem::path& folder, auto device) {
    return [folder, device] { return load(folder, device, bf16); };
  };
  const auto device = staying<Lanes32>(0);
  check_speculation_of(on(draft, device), on(target, device));
  check_speculation_of(on(draft, staying<Lanes64>(1)), on(target, Lanes64{}));
  const TemporaryFolder folder;
  write_four_bits(folder.path());
  const auto four_bits = [&] { return load(folder.path(), staying<Lanes32>(1)); };
  check_speculation_of(four_bits, on(draft, Lanes32{1}));
}
