// Attention on emulated devices of every matrix layout, threads forward and backward.
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane_host.hpp"
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

TEST_CASE("every number of a page becomes the intended half") {
  using Lane = gpu::HostLane<gpu::MmaSync16x8x16>;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    // Each beside a small number and beside one outside the range of half, in both halves of a word.
    for (const std::uint32_t other : {0x3f80u, 0x7f00u}) {
      const gpu::Word4 eight{{bits << 16 | other, other << 16 | bits, 0, 0}};
      const gpu::Word4 halves = gpu::KvHead<bfloat16_t>::halves_of<Lane>(eight);
      const std::uint32_t own = Lane::pack2<half_t>(to_float(bfloat16_t{static_cast<std::uint16_t>(bits)}), 0);
      const std::uint32_t beside = Lane::pack2<half_t>(to_float(bfloat16_t{static_cast<std::uint16_t>(other)}), 0);
      if (halves.word[0] != (own << 16 | beside) || halves.word[1] != (beside << 16 | own)) FAIL_CHECK(bits);
    }
  }
  for (int code = -128; code < 128; ++code) {
    const std::uint32_t byte = static_cast<std::uint8_t>(code);
    const gpu::Word4 halves = gpu::KvHead<std::int8_t>::halves_of<Lane>({{byte * 0x01010101u, byte << 8}});
    const std::uint32_t own = Lane::pack2<half_t>(1152.0f + static_cast<float>(code), 0), zero = 0x6480;
    CHECK(halves.word[0] == (own << 16 | own));
    CHECK(halves.word[1] == (own << 16 | own));
    CHECK(halves.word[2] == (own << 16 | zero));
    CHECK(halves.word[3] == (zero << 16 | zero));
  }
}

TEST_CASE("heads wider than any kernel are rejected") {
  const AttentionCase c{{1, 1, 600}, 0, 1, 0, false};
  AttentionInputs in(c, KvFormat::f16, 1);
  CHECK_THROWS_WITH(attend(backend::Lanes32{}, c, {0}, {{&in, 0, 1}}), Catch::Contains("gpu.head-dim"));
}
