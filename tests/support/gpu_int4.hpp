// Four-bit products of backend::Gpu against Reference: every block size, both variants with the same bits; and a
// four-bit embedding. The same bodies run on emulated and real devices.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "support/gpu_layer.hpp"
#include "support/int4_layers.hpp"

namespace slm::testing {

struct Int4Case {
  int out, in, group;  // -1: the whole row
};
inline const std::vector<Int4Case> int4_cases{{64, 256, 128}, {50, 384, 128}, {36, 192, 64}, {32, 160, 32},
                                              {20, 96, -1},   {40, 600, 200}, {33, 90, -1}};

template <class Device>
void check_int4() {
  for (const Int4Case& c : int4_cases) {
    const std::int64_t group = c.group == -1 ? c.in : c.group;
    const Int4Rows rows_of_codes = random_rows(c.out, c.in, group, 7);
    PackedLayer layer(rows_of_codes, {.layout = Int4Layout::packed_rows});
    for (const DType scales : {DType::f16, DType::f32}) {
      std::vector<float> exact;
      if (scales == DType::f32) {  // scales outside the range of fp16
        Int4Rows other = rows_of_codes;
        for (float& scale : other.scales) scale *= 1.0001f;
        exact = other.scales;
      }
      Tensor wide = layer.tensors[1];
      if (!exact.empty()) {
        wide.dtype = DType::f32;
        wide.bytes = reinterpret_cast<const std::byte*>(exact.data());
        wide.size_bytes = exact.size() * sizeof(float);
      }
      Int4Tensor tensor = layer.layer;
      tensor.scales = &wide;
      const std::vector<LinearSource> sources{tensor};
      backend::Reference reference;
      const auto plain = reference.pack<AwqInt4<>>(sources);
      for (const int rows : {1, 7, 40}) {
        CAPTURE(c.out, c.in, c.group, name_of(scales), rows, Device::name);
        Random random(5);
        std::vector<float> input = random.vector(static_cast<std::size_t>(rows * c.in)),
                           start = random.vector(static_cast<std::size_t>(rows * c.out)), expected = start;
        reference.begin(plan_of(rows)).project(view_of(input, rows), Linear{plain}, view_of(expected, rows));
        std::vector<std::vector<float>> found;
        for (const int most : {1000, 0}) {
          Device device(backend::GpuOptions{.device = Device::emulated && most == 0, .most_vector_rows = most});
          const auto weight = device.template pack<AwqInt4<>>(sources);
          OnDevice<Device> x(device, start), from(device, input);
          device.begin(plan_of(rows)).project(from.rows(rows), Linear{weight}, x.rows(rows));
          found.push_back(x.read());
          CHECK(worst(found.back(), expected) < product_tolerance<Bf16>());
        }
        CHECK(std::memcmp(found[0].data(), found[1].data(), start.size() * sizeof(float)) == 0);
      }
      Device device;
      const auto weight = device.template pack<AwqInt4<>>(sources);
      const std::vector<Token> tokens{0, static_cast<Token>(c.out - 1), 7};
      std::vector<float> expected(static_cast<std::size_t>(3 * c.in));
      OnDevice<Device> found(device, expected);
      const TestPlan plan(tokens);
      device.begin(plan).embed(weight, found.rows(3));
      reference.begin(plan).embed(plain, view_of(expected, 3));
      CHECK(found.read() == expected);
    }
  }
}

}  // namespace slm::testing
