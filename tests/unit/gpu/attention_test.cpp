// Attention on emulated devices of every matrix layout, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_attention.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("attention with 32 lanes and mma.sync") {
  check_attention<backend::Lanes32>(GENERATE(0, 1), GENERATE(KvFormat::f16, KvFormat::bf16, KvFormat::int8));
}
TEST_CASE("attention with 64 lanes and MFMA") {
  check_attention<backend::Lanes64>(GENERATE(0, 1), GENERATE(KvFormat::f16, KvFormat::bf16, KvFormat::int8));
}
TEST_CASE("attention with 32 lanes and WMMA") {
  check_attention<backend::LanesRdna>(GENERATE(0, 1), GENERATE(KvFormat::f16, KvFormat::bf16, KvFormat::int8));
}

TEST_CASE("heads wider than any kernel are refused") {
  const AttentionCase c{{1, 1, 300}, 0, 1, 0, false};
  AttentionInputs in(c, KvFormat::f16, 1);
  CHECK_THROWS_WITH(attend(backend::Lanes32{}, c, {0}, {{&in, 0, 1}}), Catch::Contains("gpu.head-dim"));
}
