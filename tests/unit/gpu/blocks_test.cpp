// GGUF's blocks on emulated devices of every matrix layout, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_blocks.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("blocks with 32 lanes and mma.sync") { check_blocks<backend::Lanes32>(); }
TEST_CASE("blocks with 64 lanes and MFMA") { check_blocks<backend::Lanes64>(); }
TEST_CASE("blocks with 32 lanes and WMMA", "[long]") { check_blocks<backend::LanesRdna>(); }

TEST_CASE("types with different block lengths are dequantized within one matrix") {
  const StackedBlocks blocks({DType::iq4_nl, DType::q5_k}, 16, 256);
  const std::vector<LinearSource> sources = blocks.sources();
  CHECK_FALSE(block_tiles_hold(sources));
  const auto weight = backend::Lanes32{}.pack<AwqInt4<>>(sources);
  CHECK(weight.bytes() > 4 * weight.out * weight.in);
  CHECK(are_weights(weights_on_device<backend::Lanes32>(blocks, 256, 0), blocks, 256));
}
