// The error for a model that does not fit into a device's memory: before loading, with a size that fits.
#include "slm/model/device_memory.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/model/load.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// An emulated device with a given amount of free memory.
struct SmallDevice : backend::Lanes32 {
  struct Memory {
    std::size_t free;
    std::size_t memory_free() const { return free; }
  };
  explicit SmallDevice(std::size_t free = 0) : memory{free} {}
  Memory runtime() const { return memory; }
  Memory memory;
};

std::string said(const Checkpoint& checkpoint, int context, std::size_t free) {
  try {
    const KvLayout layout(checkpoint.config(), checkpoint.settings(), KvFormat::f16);
    check_device_memory(checkpoint, WeightType::bf16, layout, context, SmallDevice(free));
  } catch (const Error& error) {
    CHECK(error.id() == "gpu.out-of-memory");
    return error.what();
  }
  return "it fits";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a model that fits is accepted") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path(), tiny_shape, 1);
  CHECK(said(Checkpoint(folder.path()), 512, 70 * mebibyte) == "it fits");
  CHECK(HasDeviceMemory<backend::Lanes32>);
  CHECK_FALSE(HasDeviceMemory<backend::Cpu>);
}

TEST_CASE("the error for a too long context states one that fits") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path(), tiny_shape, 1, false, 1 << 20);
  const Checkpoint checkpoint(folder.path());
  const std::string text = said(checkpoint, 1 << 20, 200 * mebibyte);
  INFO(text);
  CHECK(contains(text, "256.0 MiB of KV cache for 1048576 tokens"));  // 2 layers, 2 x 2 heads of 16 halves
  CHECK(contains(text, "200.0 MiB of 1024.0 GiB are free"));
  const std::string number = text.substr(text.find("--context) to ") + 13);
  const int suggested = std::stoi(number);
  CHECK(suggested > 200000);
  CHECK(said(checkpoint, suggested, 200 * mebibyte) == "it fits");
  CHECK(said(checkpoint, suggested + 128, 200 * mebibyte) != "it fits");
}

TEST_CASE("the error for too large weights suggests four bits, or nothing") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(
      folder.path(), {.layers = 4, .hidden = 512, .ffn = 2048, .heads = 8, .kv_heads = 8, .head_dim = 64, .vocab = 100},
      1);
  const Checkpoint checkpoint(folder.path());
  CHECK(contains(said(checkpoint, 512, 80 * mebibyte), "In 4-bit format its weights take about"));
  CHECK(contains(said(checkpoint, 512, 60 * mebibyte), "Use a smaller model"));
  CHECK(device_weight_bytes(checkpoint, WeightType::f32) == 2 * device_weight_bytes(checkpoint, WeightType::bf16));
}

TEST_CASE("matrices in blocks are counted as stored on the device") {
  const Checkpoint checkpoint(fixture("gguf/all-types.gguf"));
  std::size_t held = 0, multiplied_out = 0;
  checkpoint.names().for_each([&](Role, int, const auto& weights, const auto&) {
    std::vector<LinearSource> sources;
    for (const TensorName& weight : weights) {
      const Tensor* const tensor = checkpoint.find(weight.name);
      if (tensor != nullptr && is_blocked(tensor->dtype)) sources.push_back(*tensor);
    }
    if (sources.empty()) return;
    if (block_tiles_hold(sources)) {
      held += static_cast<std::size_t>(backend::Lanes32{}.pack<AwqInt4<>>(sources).bytes());
    } else {
      for (const LinearSource& source : sources) {
        multiplied_out += static_cast<std::size_t>(out_features(source) * in_features(source)) * sizeof(float);
      }
    }
  });
  CHECK(held > 0);
  CHECK(device_block_bytes(checkpoint) == held + multiplied_out);
}
