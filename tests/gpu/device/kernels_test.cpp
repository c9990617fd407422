// The kernels on a device against Reference: the bodies that run on emulated lanes everywhere.
#include "gpu/device/device.hpp"
#include "support/gpu_attention.hpp"
#include "support/gpu_int4.hpp"
#include "support/gpu_products.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("attention on the device") {
  if (!no_device()) check_attention<Device>(0);
}
TEST_CASE("products of float weights on the device") {
  if (!no_device()) check_products<Device, Fp32>(0);
}
TEST_CASE("products of half weights on the device") {
  if (!no_device()) check_products<Device, Fp16>(0);
}
TEST_CASE("products of bfloat16 weights on the device") {
  if (!no_device()) check_products<Device, Bf16>(0);
}
TEST_CASE("products of four-bit weights on the device") {
  if (!no_device()) check_int4<Device>();
}
