// Products of fp32 weights on emulated devices whose matrix units truncate sums, as tensor cores do.
#include "support/gpu_cut_sums.hpp"
#include "support/gpu_products.hpp"

using namespace slm;
using namespace slm::testing;

TEMPLATE_TEST_CASE("fp32 products are as exact as fp32 sums, although the matrix unit truncates", "", LanesA100,
                   LanesH100) {
  check_deep_sums<TestType>(GENERATE(576, 4096, 16384));
}
