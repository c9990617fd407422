// The kernels on a device against Reference, with the test bodies of the emulated lanes.
#include "gpu/device/device.hpp"
#include "support/gpu_attention.hpp"
#include "support/gpu_blocks.hpp"
#include "support/gpu_choice.hpp"
#include "support/gpu_experts.hpp"
#include "support/gpu_int4.hpp"
#include "support/gpu_products.hpp"
#include "support/gpu_rows.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("attention on the device") {
  if (no_device()) return;
  for (const KvFormat format : Device::kv_formats) check_attention<Device>(0, format);
}
TEST_CASE("products of float weights on the device") {
  if (!no_device()) check_products<Device, Fp32>(0);
}
TEST_CASE("fp32 products are as exact as fp32 sums on the device") {
  if (no_device()) return;
  for (const int depth : {576, 4096, 16384}) check_deep_sums<Device>(depth);
}
TEST_CASE("products of half weights on the device") {
  if (!no_device()) check_products<Device, Fp16>(0);
}
TEST_CASE("products of bfloat16 weights on the device") {
  if (!no_device()) check_products<Device, Bf16>(0);
}
TEST_CASE("products with adapters of any rank beside rows without, on the device") {
  if (no_device()) return;
  check_adapted_products<Device, Fp32>(0);
  check_adapted_products<Device, Bf16>(0);
}
TEST_CASE("products of four-bit weights on the device") {
  if (!no_device()) check_int4<Device>();
}
TEST_CASE("products of weights in GGUF's blocks on the device") {
  if (!no_device()) check_blocks<Device>();
}
TEST_CASE("mixtures of experts on the device") {
  if (no_device()) return;
  for (const MixtureCase& of : mixture_cases) {
    check_experts<Device, Fp32>(of, Device{});
    check_experts<Device, Bf16>(of, Device{});
  }
}
TEST_CASE("operations of layers of different shapes on the device") {
  if (no_device()) return;
  check_multiplied_rows<Device>(0);
  check_short_table<Device>(0);
  check_streams<Device>(0);
  check_head_products<Device, Fp32>(0);
  check_head_products<Device, Bf16>(0);
  check_rows_apart<Device>(0);
  for (const KvFormat format : Device::kv_formats) check_qkv_parts<Device>(0, format);
}
TEST_CASE("vocabularies of 50304 and 50432 ids on the device") {
  if (no_device()) return;
  check_vocabulary<Device, Bf16>({}, 50304);
  check_vocabulary<Device, Fp32>({}, 50432);
}
TEST_CASE("the device chooses the host's tokens") {
  if (no_device()) return;
  check_choices<Runtime>(4000, 1);
  check_masked_choices<Runtime>(2000);
  for (const int vocab : {32000, 50304, 50432, 128256}) check_choice_of<Runtime>(vocab, 0);
}
