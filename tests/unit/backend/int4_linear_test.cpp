// The public interface of the four-bit product.
#include <catch2/catch.hpp>
#include <vector>

#include "slm/awq.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/int4_products.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("one layer, any layout, any number of rows, on both backends") {
  for (const Int4Layout layout : all_layouts) {
    const PackedLayer packed(random_rows(64, 128, 64, 1), Int4Packing{.layout = layout});
    AwqLinear<> linear(packed.layer, backend::Cpu{2});
    AwqLinear<backend::Reference> reference(packed.layer);
    for (const int rows : {1, 5, 1030}) {
      const std::vector<float> x = gaussian(static_cast<std::size_t>(rows) * 128, 2);
      std::vector<float> y(static_cast<std::size_t>(rows) * 64, 1.0f), z = y;
      linear.multiply_add(View<const float, 2>{x.data(), rows, 128}, View<float, 2>{y.data(), rows, 64});
      reference.multiply_add(View<const float, 2>{x.data(), rows, 128}, View<float, 2>{z.data(), rows, 64});
      for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == Approx(z[i]).margin(2e-3));
      std::vector<double> exact = exact_product(weights_of(packed.layer), x, rows, 128);
      for (double& value : exact) value += 1;
      CHECK(relative_error(y, exact) < 1e-4);
    }
  }
}

TEST_CASE("shapes are checked") {
  const PackedLayer packed(random_rows(64, 128, 64, 1), Int4Packing{});
  AwqLinear<> linear(packed.layer);
  std::vector<float> x(2 * 128), y(2 * 128);
  const auto id = [&](View<const float, 2> in, View<float, 2> out) -> std::string {
    try {
      linear.multiply_add(in, out);
    } catch (const Error& error) {
      return error.id();
    }
    return "no error";
  };
  CHECK(id(View<const float, 2>{x.data(), 2, 128}, View<float, 2>{y.data(), 2, 64}) == "no error");
  CHECK(id(View<const float, 2>{x.data(), 2, 127}, View<float, 2>{y.data(), 2, 64}) == "backend.wrong-shape");
  CHECK(id(View<const float, 2>{x.data(), 2, 128}, View<float, 2>{y.data(), 1, 64}) == "backend.wrong-shape");
  CHECK(id(View<const float, 2>{x.data(), 2, 128}, View<float, 2>{y.data(), 2, 65}) == "backend.wrong-shape");
}
