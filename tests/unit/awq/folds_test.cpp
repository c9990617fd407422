// Moving scales through a fold changes nothing: for every family, every fold of its blocks, random scales.
#include "slm/awq/folds.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "slm/awq/layer_quantizer.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::quantize;

namespace {

struct Block {
  explicit Block(const std::string& name) : checkpoint(testing::fixture("models/" + name)) {
    inputs.start(layer, rounding, true);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(1.3f * static_cast<float>(i) + 0.2f);
  }

  const ModelConfig& shape() const { return checkpoint.config(); }
  std::vector<Fold> folds(bool divisors) const { return folds_of(shape(), checkpoint.settings(), divisors); }

  /// The block's addition to the residual stream.
  Rows run() {
    Rows between = x;
    Rows y = runner.attention(layer, runner.mixed(layer, layer.weights.qkv, x));
    if (shape().order != BlockOrder::parallel) {
      for (std::size_t i = 0; i < y.size(); ++i) between[i] += y[i];
    }
    const Rows z = runner.mlp(layer, runner.gated(layer, layer.weights.gate_up, between));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += z[i];
    return y;
  }

  std::vector<float> random_scales(Fold fold) {
    std::vector<float> scales(quantizer.features(fold).count);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] = std::exp(std::sin(2.7f * static_cast<float>(i) + 1));
    }
    return scales;
  }

  Checkpoint checkpoint;
  backend::Cpu device{1};
  WeightReader<Fp32, backend::Cpu> reader{checkpoint, device};
  Rounding rounding{.quantizer = {}, .group = whole_row};
  FloatLayer layer{reader, 0};
  LayerInputs inputs;
  BlockRunner runner{checkpoint, device};
  LayerQuantizer quantizer{checkpoint.config(), layer, inputs, runner, rounding};
  Rows x = Rows(5 * static_cast<std::size_t>(checkpoint.config().hidden));
};

double relative_difference(const Rows& a, const Rows& b) {
  double change = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    change += double{a[i] - b[i]} * double{a[i] - b[i]};
    size += double{b[i]} * double{b[i]};
  }
  return std::sqrt(change / size);
}

const char* const models[] = {"llama-mha3h",
                              "llama-bias",
                              "llama3-gqa-scaled-tied",
                              "mistral-swa8",
                              "olmo-tied",
                              "olmo-clip-untied",
                              "mpt-alibi-4h",
                              "mpt-foundry-3b-like",
                              "mpt-foundry-mqa",
                              "mosaicgpt-qkln-alibi",
                              "mosaicgpt-wpe-bias-clip",
                              "phi-partial",
                              "phi3-longrope",
                              "phi3-swa7",
                              "qwen2-bias-tied",
                              "qwen3-qknorm-headdim",
                              "opt-preln"};

}  // namespace

TEST_CASE("every fold of every family is an identity") {
  std::set<Fold> seen;
  for (const char* name : models) {
    const auto folds = Block(name).folds(true);
    CAPTURE(name);
    CHECK(!folds.empty());
    for (const Fold fold : folds) {
      CAPTURE(name_of(fold));
      seen.insert(fold);
      Block block(name);
      const Rows before = block.run();
      block.quantizer.apply(fold, block.random_scales(fold));
      CHECK(relative_difference(block.run(), before) < 1e-5);
    }
    Block all(name);
    const Rows before = all.run();
    for (const Fold fold : folds) all.quantizer.apply(fold, all.random_scales(fold));
    CHECK(relative_difference(all.run(), before) < 1e-5);
  }
  CHECK(seen.size() == 6);  // each row of the table occurred
}

TEST_CASE("the test detects half a fold") {
  for (const char* name : models) {
    for (const Fold fold : Block(name).folds(true)) {
      CAPTURE(name, name_of(fold));
      Block block(name);
      const Rows before = block.run();
      // The consumers' columns change without a division: the fold, with its division undone.
      Block untouched(name);
      block.quantizer.apply(fold, block.random_scales(fold));
      std::swap(block.layer.weights.attention_norm, untouched.layer.weights.attention_norm);
      std::swap(block.layer.weights.mlp_norm, untouched.layer.weights.mlp_norm);
      std::swap(block.layer.weights.down_divisor, untouched.layer.weights.down_divisor);
      if (fold == Fold::value_to_out)
        std::swap_ranges(block.layer.qkv.weight.begin(), block.layer.qkv.weight.end(),
                         untouched.layer.qkv.weight.begin());
      if (fold == Fold::up_to_down)
        std::swap_ranges(block.layer.gate_up.weight.begin(), block.layer.gate_up.weight.end(),
                         untouched.layer.gate_up.weight.begin());
      CHECK(relative_difference(block.run(), before) > 1e-2);
    }
  }
}

TEST_CASE("a clip between value and output forbids their fold; a gate without divisors does not pass scales") {
  const auto has = [](const std::vector<Fold>& folds, Fold fold) {
    return std::find(folds.begin(), folds.end(), fold) != folds.end();
  };
  CHECK(!has(Block("olmo-clip-untied").folds(true), Fold::value_to_out));
  CHECK(has(Block("olmo-tied").folds(true), Fold::value_to_out));
  CHECK(!has(Block("olmo-tied").folds(true), Fold::norm_to_qkv));  // its norm has no weights
  CHECK(!has(Block("mpt-alibi-4h").folds(false), Fold::activation_to_down));
  CHECK(!has(Block("phi-partial").folds(false), Fold::up_to_down));
  CHECK(has(Block("phi-partial").folds(false), Fold::norm_to_qkv_and_up));
}
