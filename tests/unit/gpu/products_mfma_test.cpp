// Products on emulated devices with 64 lanes and MFMA, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_products.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("products with 64 lanes and MFMA") {
  check_products<backend::Lanes64, Fp32>(1);
  check_products<backend::Lanes64, Bf16>(0);
}

TEST_CASE("products with 64 lanes and MFMA, with adapters of any rank beside rows without") {
  check_adapted_products<backend::Lanes64, Bf16>(1);
}

TEST_CASE("vocabularies of 50304 and 50432 ids with 64 lanes and MFMA") {
  check_vocabulary<backend::Lanes64, Bf16>({}, 50304);
  check_vocabulary<backend::Lanes64, Fp32>({}, 50432);
}
