// Whole quantized models on emulated lanes, as target of speculation too.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_adapters.hpp"
#include "support/gpu_models.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("four-bit models on 32 lanes") { check_four_bits(backend::Lanes32{}); }

TEST_CASE("adapters on a four-bit model on 32 lanes") { check_adapted_four_bits(backend::Lanes32{}); }

TEST_CASE("a GGUF file of every block type on 32 lanes") {
  CHECK(worst_difference(fixture("gguf/all-types.gguf"), backend::Lanes32{}) < 0.15);
}
