// Whole models with 4-bit layers: logits must not depend on a checkpoint's layout.
#include <catch2/catch.hpp>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"
#include "support/golden.hpp"
#include "support/int4_layers.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

const std::vector<Token> prompt{5, 90, 0, 31, 31, 7, 96, 64, 2, 18, 42};

template <class Format, class B = backend::Reference>
std::vector<float> logits_as(std::shared_ptr<const Checkpoint> checkpoint, B device = {}) {
  const Dynamic shape{checkpoint->config()};
  Session model(Model<Dynamic, Format, B>(shape, std::move(checkpoint), std::move(device)));
  const View<const float, 2> logits = model.forward(prompt, static_cast<int>(prompt.size()));
  return {logits.data, logits.data + logits.size()};
}

std::vector<float> logits_of(const std::filesystem::path& folder) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder);
  return has_int4_layers(*checkpoint) ? logits_as<AwqInt4<>>(checkpoint) : logits_as<Fp32>(checkpoint);
}

std::vector<float> logits_of(const EditableCheckpoint& checkpoint) {
  const TemporaryFolder folder;
  checkpoint.write(folder.path());
  return logits_of(folder.path());
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("the same 4-bit model in every layout gives the same logits, those of its dequantized weights") {
  for (const char* name : {"models/llama-mha3h", "models/llama3-gqa-scaled-tied", "models/llama-sharded-bf16"}) {
    const Checkpoint source(fixture(name));
    const std::vector<float> original = logits_of(fixture(name));
    for (const int group : {16, 8, -1}) {
      for (const bool symmetric : {false, true}) {
        const auto expected = logits_of(dequantized(source, {.group = group, .symmetric = symmetric}));
        const double distance = relative_distance(expected, original);
        CHECK(distance > 1e-3);  // 4 bits are not the same model
        CHECK(distance < 0.6);   // and not a different model, whose distance would be about 1.4
        for (const Int4Layout layout : all_layouts) {
          if (layout == Int4Layout::awq_gemv_fast) continue;  // needs multiples of 64 inputs: the next test
          INFO(name << " group " << group << " " << name_of(layout));
          const bool quark = layout == Int4Layout::quark_order || layout == Int4Layout::quark_reorder;
          for (const bool complement : {false, true}) {
            if (complement && !quark) continue;
            const QuantizedForm form{layout, group, symmetric, complement, DType::f16};
            CHECK(logits_of(quantized(source, form)) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("4-bit matrices of grouped rows in every layout, as from their dequantized weights") {
  for (const char* name : {"models/internlm2", "models/gptneox-parallel", "models/falcon-7b"}) {
    const Checkpoint source(fixture(name));
    const std::vector<float> original = logits_of(fixture(name));
    const auto expected = logits_of(dequantized(source, {.group = 8}));
    const double distance = relative_distance(expected, original);
    CHECK(distance > 1e-3);
    CHECK(distance < 0.6);
    for (const Int4Layout layout : all_layouts) {
      if (layout == Int4Layout::awq_gemv_fast) continue;  // needs multiples of 64 inputs
      INFO(name << " " << name_of(layout));
      CHECK(logits_of(quantized(source, {.layout = layout, .group = 8})) == expected);
    }
  }
}

TEST_CASE("all seven layouts, groups of usual size, and every type of scale") {
  const ModelConfig shape{
      .layers = 2, .hidden = 128, .ffn = 192, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 101};
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path(), shape, 11);
  const Checkpoint source(folder.path());
  for (const int group : {32, 64, -1}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      const auto expected = logits_of(dequantized(source, {.group = group, .scale_dtype = dtype}));
      for (const Int4Layout layout : all_layouts) {
        INFO("group " << group << " " << name_of(layout) << " scales " << name_of(dtype));
        CHECK(logits_of(quantized(source, {.layout = layout, .group = group, .scale_dtype = dtype})) == expected);
      }
    }
  }
}

TEST_CASE(
    "logits of four bits on the CPU differ by at most 1e-4 of the largest from those of the dequantized weights") {
  for (const char* name : {"draft-int4", "target-int4"}) {
    const auto checkpoint = std::make_shared<const Checkpoint>(demo_pair(name));
    const std::vector<float> exact = logits_as<AwqInt4<>>(checkpoint);
    const std::vector<float> found = logits_as<AwqInt4<>>(checkpoint, backend::Cpu{});
    double largest = 0, furthest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      largest = std::max(largest, std::abs(double{exact[i]}));
      furthest = std::max(furthest, std::abs(double{exact[i]} - double{found[i]}));
    }
    CHECK(furthest < 1e-4 * largest);
    CHECK(furthest > 0);
  }
}

TEST_CASE("layers in floating point stay unchanged, for any lists in config.json") {
  const Checkpoint source(fixture("models/llama-mha3h"));
  const QuantizedForm form{};
  const EditableCheckpoint plain = dequantized(source, form);
  EditableCheckpoint mixed = quantized(source, form);
  const std::string module = "model.layers.1.mlp.down_proj";
  for (const char* part : {".qweight", ".scales", ".qzeros"}) mixed.tensors.erase(module + part);
  mixed.add(plain.tensors.at(module + ".weight"));
  mixed.config["quantization_config"]["modules_to_not_convert"] = {"gate"};  // a substring of every gate_proj
  CHECK(logits_of(mixed) == logits_of(plain));
}
