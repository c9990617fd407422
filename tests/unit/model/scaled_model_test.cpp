// Whole models in FP8, 8-bit integers and GPTQ with activation order give the logits of their dequantized weights.
#include <catch2/catch.hpp>
#include <cmath>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/formats/float8.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

enum class Published { fp8, int8, gptq_order };

/// Both writings of a model: with codes, and with the values of the codes in F32.
struct Pair {
  EditableCheckpoint codes, values;
};

std::uint8_t nearest_float8(float value) {
  int best = 0;
  for (int bits = 0; bits < 256; ++bits) {
    const auto distance = [value](int code) {
      return std::abs(to_float(float8_t{static_cast<std::uint8_t>(code)}) - value);
    };
    if (distance(bits) < distance(best)) best = bits;  // never NaN
  }
  return static_cast<std::uint8_t>(best);
}

/// One scale per output: the largest weight over `most`, rounded to BF16.
float scale_of(const float* row, std::int64_t in, float most) {
  float largest = 0;
  for (std::int64_t k = 0; k < in; ++k) largest = std::max(largest, std::abs(row[k]));
  return to_float(from_float<bfloat16_t>(largest / most));
}

void add_layer(Pair& pair, Published form, const std::string& module, const Tensor& weight) {
  const std::int64_t out = weight.shape[0], in = weight.shape[1], groups = 4;
  std::vector<float> w(static_cast<std::size_t>(out * in));
  convert(weight, 0, out * in, w.data());
  OwnedTensor values(module + ".weight", DType::f32, {out, in});
  const bool gptq = form == Published::gptq_order;
  OwnedTensor codes =
      gptq ? OwnedTensor(module + ".qweight", DType::i32, {in / 8, out})
           : OwnedTensor(module + ".weight", form == Published::fp8 ? DType::f8_e4m3 : DType::i8, {out, in});
  OwnedTensor scales = gptq ? OwnedTensor(module + ".scales", DType::f16, {groups, out})
                            : OwnedTensor(module + ".weight_scale", DType::bf16, {out, 1});
  std::vector<std::uint32_t> words(static_cast<std::size_t>(in / 8 * out));
  for (std::int64_t n = 0; n < out; ++n) {
    const float* row = &w[static_cast<std::size_t>(n * in)];
    const float scale = scale_of(row, in, form == Published::fp8 ? 448.0f : form == Published::int8 ? 127.0f : 7.0f);
    if (!gptq) scales.set_float(n, scale);
    for (std::int64_t k = 0; k < in; ++k) {
      float value = 0;
      if (form == Published::fp8) {
        const std::uint8_t code = nearest_float8(row[k] / scale);
        codes.set(n * in + k, code);
        value = to_float(float8_t{code}) * scale;
      } else if (form == Published::int8) {
        const float code = std::clamp(std::nearbyint(row[k] / scale), -128.0f, 127.0f);
        codes.set(n * in + k, static_cast<std::int8_t>(code));
        value = code * scale;
      } else {  // group k % groups, whose scale is one of several sizes
        const float own = to_float(from_float<half_t>(scale * static_cast<float>(1 + k % groups)));
        scales.set_float(k % groups * out + n, own);
        const float code = std::clamp(std::nearbyint(row[k] / own) + 8, 0.0f, 15.0f);
        words[static_cast<std::size_t>(k / 8 * out + n)] |= static_cast<std::uint32_t>(code) << 4 * (k % 8);
        value = (code - 8) * own;
      }
      values.set_float(n * in + k, value);
    }
  }
  if (gptq) {
    for (std::size_t i = 0; i < words.size(); ++i) codes.set(static_cast<std::int64_t>(i), words[i]);
    OwnedTensor zeros(module + ".qzeros", DType::i32, {groups, out / 8}), order(module + ".g_idx", DType::i32, {in});
    for (std::int64_t i = 0; i < zeros.elements(); ++i) zeros.set(i, 0x77777777u);
    for (std::int64_t k = 0; k < in; ++k) order.set(k, static_cast<std::int32_t>(k % groups));
    pair.codes.add(std::move(zeros));
    pair.codes.add(std::move(order));
  }
  pair.codes.add(std::move(codes));
  pair.codes.add(std::move(scales));
  pair.values.add(std::move(values));
}

Pair pair_of(const Checkpoint& source, Published form) {
  Pair pair;
  pair.codes.config = pair.values.config = read_json_object(source.folder() / "config.json");
  Json& settings = pair.codes.config["quantization_config"];
  switch (form) {
    case Published::fp8: settings = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}}; break;
    case Published::int8:
      settings = {
          {"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"config_groups", {{"group_0", {{"weights", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}}}}}}};
      break;
    case Published::gptq_order: settings = {{"quant_method", "gptq"}, {"bits", 4}, {"desc_act", true}}; break;
  }
  for (const auto& [name, tensor] : source.tensors()) {
    if (is_linear_weight(name)) {
      add_layer(pair, form, name.substr(0, name.size() - std::string(".weight").size()), *tensor);
      continue;
    }
    OwnedTensor same(name, tensor->dtype, tensor->shape);
    std::copy_n(tensor->bytes, tensor->size_bytes, same.storage.get());
    pair.codes.add(same);
    pair.values.add(same);
  }
  return pair;
}

template <class B>
std::vector<float> logits_of(const EditableCheckpoint& checkpoint, B device, LoadOptions options = {}) {
  const TemporaryFolder folder;
  checkpoint.write(folder.path());
  Session model(load(folder.path(), std::move(device), options));
  const std::vector<Token> prompt{5, 90, 0, 31, 31, 7, 96, 64, 2, 18, 42};
  const View<const float, 2> logits = model.forward(prompt, static_cast<int>(prompt.size()));
  return {logits.data, logits.data + logits.size()};
}

}  // namespace

TEST_CASE("published weights that are dequantized at load give the logits of their values") {
  const Checkpoint source(fixture("models/llama-sharded-bf16"));
  for (const Published form : {Published::fp8, Published::int8, Published::gptq_order}) {
    CAPTURE(static_cast<int>(form));
    const Pair pair = pair_of(source, form);
    // The values' folder has matrices of several types, which the default would round to the embedding's.
    const LoadOptions exact{.weights = WeightType::f32};
    const std::vector<float> expected = logits_of(pair.values, backend::Reference{}, exact);
    CHECK(logits_of(pair.codes, backend::Reference{}) == expected);
    const std::vector<float> on_cpu = logits_of(pair.codes, backend::Cpu{});
    double largest = 0, furthest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(double{expected[i]}));
      furthest = std::max(furthest, std::abs(double{expected[i]} - double{on_cpu[i]}));
    }
    CHECK(furthest < 1e-4 * largest);
    if (form == Published::gptq_order) {
      CHECK_THROWS_WITH(logits_of(pair.codes, backend::Reference{}, exact), Catch::Contains("model.quantized"));
    } else {
      CHECK(logits_of(pair.codes, backend::Reference{}, exact) == expected);
      CHECK(logits_of(pair.codes, backend::Reference{}, {.weights = WeightType::bf16}) ==
            logits_of(pair.values, backend::Reference{}, {.weights = WeightType::bf16}));
    }
  }
}
