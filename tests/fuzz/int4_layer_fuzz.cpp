// Any layout, size, types, shapes and bytes of a 4-bit layer: an Error, or codes and zero points of 0..15 from inside
// the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "fuzzer.hpp"
#include "layer_input.hpp"
#include "message.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/int4_rows.hpp"

SLM_FUZZER(data, size) {
  LayerInput input(data, size);
  slm::Int4Tensor layer;
  layer.name = "fuzz";
  layer.layout = static_cast<slm::Int4Layout>(input.number() % 7);
  layer.out = input.number() % 40 + 1;
  layer.in = (input.number() % 40 + 1) * (input.number() % 2 == 0 ? 1 : 8);
  layer.group = input.number();
  const int form = input.number();
  layer.twos_complement = form % 2 != 0;
  layer.zeros_less_one = form / 2 % 2 != 0;
  const auto shapes = slm::shapes_of(layer.layout, layer.out, layer.in, std::max<std::int64_t>(layer.group, 1));
  LayerTensor codes, scales, zeros;
  codes.make(input, "codes", shapes.code_dtype, shapes.codes);
  scales.make(input, "scales", slm::DType::f16, shapes.scales);
  layer.codes = &codes.tensor;
  layer.scales = &scales.tensor;
  if (input.number() % 2 != 0) {
    zeros.make(input, "zeros", slm::has_integer_zeros(layer.layout) ? slm::DType::i32 : slm::DType::f16, shapes.zeros);
    layer.zeros = &zeros.tensor;
  }
  try {
    slm::check_int4(layer, "fuzz");
  } catch (const slm::Error& error) {
    check_message(error);
    return 0;
  }
  const std::int64_t first = input.number() % layer.out;
  for (const slm::Int4Rows& rows : {slm::unpack(layer, 0, layer.out), slm::unpack(layer, first, layer.out - first)}) {
    const auto beyond = [](std::uint8_t value) { return value > 15; };
    if (std::any_of(rows.codes.begin(), rows.codes.end(), beyond)) std::abort();
    if (std::any_of(rows.zeros.begin(), rows.zeros.end(), beyond)) std::abort();
  }
  return 0;
}
