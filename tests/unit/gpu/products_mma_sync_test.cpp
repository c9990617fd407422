// Products on emulated devices with 32 lanes and mma.sync, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_products.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("products with 32 lanes and mma.sync") {
  check_products<backend::Lanes32, Fp32>(0);
  check_products<backend::Lanes32, Fp16>(1);
}

TEST_CASE("products with 32 lanes and mma.sync, with adapters of any rank beside rows without") {
  check_adapted_products<backend::Lanes32, Fp32>(0);
}

TEST_CASE("vocabularies of 50304 and 50432 ids with 32 lanes and mma.sync") {
  check_vocabulary<backend::Lanes32, Bf16>({}, 50304);
  check_vocabulary<backend::Lanes32, Fp32>({}, 50432);
}
