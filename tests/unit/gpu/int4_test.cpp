// Four bits on emulated devices of every matrix layout, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_int4.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("four bits with 32 lanes and mma.sync") { check_int4<backend::Lanes32>(); }
TEST_CASE("four bits with 64 lanes and MFMA") { check_int4<backend::Lanes64>(); }
TEST_CASE("four bits with 32 lanes and WMMA") { check_int4<backend::LanesRdna>(); }
