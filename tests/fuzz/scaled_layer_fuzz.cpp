// Any layout, size, types, shapes and bytes of a layer that is dequantized at load: an Error, or finite weights that
// are read from inside the bytes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "fuzzer.hpp"
#include "layer_input.hpp"
#include "message.hpp"
#include "slm/formats/scaled_check.hpp"
#include "slm/formats/scaled_tensor.hpp"

SLM_FUZZER(data, size) {
  LayerInput input(data, size);
  slm::ScaledTensor layer;
  layer.name = layer.file = "fuzz";
  layer.layout = static_cast<slm::ScaledLayout>(input.number() % 4);
  const bool gptq = layer.layout == slm::ScaledLayout::gptq;
  layer.out = (input.number() % 10 + 1) * (input.number() % 2 == 0 ? 1 : 8);
  layer.in = (input.number() % 40 + 1) * (input.number() % 2 == 0 ? 1 : 8);
  layer.inputs = input.number();
  const int form = input.number();
  layer.bits = gptq && form % 2 == 0 ? 4 : 8;
  layer.zeros_less_one = form / 2 % 2 != 0;
  if (form / 4 % 2 != 0 && !gptq) layer.outputs = input.number() % 40 + 1;
  const std::int64_t groups = slm::ceil_div(layer.in, std::max<std::int64_t>(layer.inputs, 1));
  const std::int64_t rows = slm::ceil_div(layer.out, layer.outputs), per_word = 32 / layer.bits;
  const auto words = [per_word](std::int64_t codes) { return slm::ceil_div(codes, per_word); };
  LayerTensor codes, scales, zeros, order;
  switch (layer.layout) {
    case slm::ScaledLayout::f8_rows: codes.make(input, "codes", slm::DType::f8_e4m3, {layer.out, layer.in}); break;
    case slm::ScaledLayout::i8_rows: codes.make(input, "codes", slm::DType::i8, {layer.out, layer.in}); break;
    case slm::ScaledLayout::packed_rows:
      codes.make(input, "codes", slm::DType::i32, {layer.out, words(layer.in)});
      break;
    case slm::ScaledLayout::gptq: codes.make(input, "codes", slm::DType::i32, {words(layer.in), layer.out}); break;
  }
  scales.make(input, "scales", slm::DType::f16, gptq ? std::vector{groups, layer.out} : std::vector{rows, groups});
  layer.codes = &codes.tensor;
  layer.scales = &scales.tensor;
  if (gptq || form / 8 % 2 != 0) {
    const bool bytes = layer.layout == slm::ScaledLayout::i8_rows;
    zeros.make(input, "zeros", bytes ? slm::DType::i8 : slm::DType::i32,
               bytes  ? scales.tensor.shape
               : gptq ? std::vector{groups, words(layer.out)}
                      : std::vector{words(layer.out), groups});
    layer.zeros = &zeros.tensor;
  }
  if (gptq && form / 16 % 2 != 0) {
    order.make(input, "order", slm::DType::i32, {layer.in});
    layer.order = &order.tensor;
  }
  try {
    slm::check_scaled(layer, "fuzz");
    const slm::Tensor weights = slm::dequantized(layer);
    std::vector<float> values(static_cast<std::size_t>(weights.elements()));
    slm::convert(weights, 0, weights.elements(), values.data());
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
