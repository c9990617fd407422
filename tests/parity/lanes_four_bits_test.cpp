// A whole four-bit model on emulated lanes, as target of speculation too.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_models.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("four-bit models on 32 lanes") { check_four_bits(backend::Lanes32{}); }
