// Operations of layers of different shapes, residual streams and latent attention on emulated devices of every matrix
// layout.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_rows.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;
using backend::Lanes64;
using backend::LanesRdna;

TEST_CASE("rows times rows that are adjacent, apart, or one for all") {
  check_multiplied_rows<Lanes32>(0);
  check_multiplied_rows<Lanes64>(1);
}

TEST_CASE("products with queries alone, or whose values are keys, fill the pages that they should") {
  const KvFormat format = GENERATE(KvFormat::f16, KvFormat::bf16, KvFormat::int8);
  check_qkv_parts<Lanes32>(0, format);
  check_qkv_parts<Lanes64>(1, format);
  check_qkv_parts<LanesRdna>(1, format);
}

TEST_CASE("operations of residual streams on lanes") {
  check_streams<Lanes32>(0);
  check_streams<Lanes64>(1);
}

TEST_CASE("products of heads by separate matrices on lanes") {
  check_head_products<Lanes32, Fp32>(0);
  check_head_products<Lanes64, Fp32>(1);
  check_head_products<LanesRdna, Bf16>(1);
}

TEST_CASE("products and norms of rows that are apart on lanes") {
  check_rows_apart<Lanes32>(0);
  check_rows_apart<Lanes64>(1);
}

TEST_CASE("tokens beyond a table have its first row on lanes") {
  check_short_table<Lanes32>(1);
  check_short_table<Lanes64>(0);
}
