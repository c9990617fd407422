// Products on emulated devices with 32 lanes and WMMA, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_products.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("products with 32 lanes and WMMA") {
  check_products<backend::LanesRdna, Bf16>(1);
  check_products<backend::LanesRdna, Fp16>(0);
}

TEST_CASE("vocabularies of 50304 and 50432 ids with 32 lanes and WMMA") {
  check_vocabulary<backend::LanesRdna, Bf16>({}, 50304);
  check_vocabulary<backend::LanesRdna, Fp32>({}, 50432);
}
