// Folds for GGUF output: scales are searched with its blocks, and moved into norms and projections before rounding.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/awq/calibration_pass.hpp"
#include "slm/awq/layer_quantizer.hpp"
#include "slm/awq/options.hpp"
#include "slm/backend/cpu/thread_pool.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Scales lower the perplexity of Q4_0. They raise it for blocks with a minimum (docs/quantization.md), and types with
/// more bits lose too little to gain.
constexpr bool gains_from_folds(DType type) { return type == DType::q4_0; }

/// The folds of every block with the scales found. `told`: called with the progress, 0..1.
inline std::vector<LayerReport> search_folds(const Checkpoint& checkpoint, const GgufOptions& options,
                                             const std::shared_ptr<backend::ThreadPool>& pool,
                                             const std::function<void(double)>& told) {
  backend::Cpu device(options.threads);
  WeightReader<Fp32, backend::Cpu> reader{checkpoint, device};
  CalibrationPass pass(checkpoint, device, pool, options.calibration_text, options.calibration, options.search_samples);
  const Rounding rounding{.quantizer = {.scale_type = ScaleType::exact, .symmetric = true},
                          .group = 32,
                          .pool = pool,
                          .blocks = options.type};
  const std::vector<Fold> folds = folds_of(checkpoint.config(), checkpoint.settings(), false);
  std::vector<LayerReport> layers;
  const int count = checkpoint.config().layers;
  for (int index = 0; index < count; ++index) {
    FloatLayer layer(reader, index);
    LayerInputs inputs;
    inputs.start(layer, rounding, false);
    pass.advance(layer, index, &inputs);
    LayerQuantizer quantizer(checkpoint.config(), layer, inputs, pass.runner(), rounding);
    layers.push_back({index, quantizer.search(folds, [&](double share) { told((index + share) / count); })});
  }
  return layers;
}

/// The blocks of a model in fp32 with folds applied, one at a time.
class FoldedLayers {
 public:
  FoldedLayers(const Checkpoint& checkpoint, std::vector<LayerReport> layers)
      : checkpoint_(checkpoint), layers_(std::move(layers)), runner_(checkpoint, device_) {}

  /// The values of a tensor, valid until another layer is accessed; null if the layer lacks the tensor.
  const float* find(int layer, std::string_view name) {
    if (!layer_ || layer_->weights.index != layer) enter(layer);
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : found->second;
  }

 private:
  void enter(int index) {
    layer_.emplace(reader_, index);
    LayerInputs inputs;
    LayerQuantizer(checkpoint_.config(), *layer_, inputs, runner_, {})
        .apply(layers_.at(static_cast<std::size_t>(index)).folds);
    values_.clear();
    layer_->for_each(
        checkpoint_.names(),
        [&](const FloatLinear& linear, const TensorName& weight, std::int64_t first) {
          values_[weight.name] = linear.weight.data() + first * linear.in;
        },
        [&](const TensorName& name, const float* values) { values_[name.name] = values; });
  }

  const Checkpoint& checkpoint_;
  std::vector<LayerReport> layers_;
  backend::Cpu device_{1};
  WeightReader<Fp32, backend::Cpu> reader_{checkpoint_, device_};
  BlockRunner runner_;
  std::optional<FloatLayer> layer_;
  std::map<std::string, const float*, std::less<>> values_;
};

}}}
