// The definition of load(). Programs that use slm::compiled include it to load with other registries or devices.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "slm/backend/select.hpp"
#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "slm/model/stored_type.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// The type of the loaded weights. Quantized checkpoints support as_stored only.
inline WeightType loaded_type(const Checkpoint& checkpoint, WeightType asked) {
  const bool as_stored = asked == WeightType::as_stored, int4 = has_int4_layers(checkpoint);
  if (int4 && !as_stored) {
    throw Error("model.quantized",
                text("'", checkpoint.folder().string(), "': expected floating-point weights, found 4-bit weights"),
                "Load it with WeightType::as_stored, or use the floating-point checkpoint of the model");
  }
  if (!as_stored) return asked;
  return int4 || has_scaled_layers(checkpoint) || has_blocks(checkpoint) ? WeightType::as_stored
                                                                         : stored_type(checkpoint);
}

/// run_blocks of the registry's config with this shape, else of Dynamic.
template <class B, class... Models>
RunBlocks<AnyFormat, B> blocks_of(Registry<Models...> models, const ModelConfig& shape, bool only_known,
                                  const std::filesystem::path& folder) {
  RunBlocks<AnyFormat, B> blocks = nullptr;
  visit(models, shape, [&]<class Shape>(Shape) { blocks = run_blocks<Shape, AnyFormat, B>; });
  if (blocks != nullptr) return blocks;
  if (only_known) throw not_registered(models, shape, folder.string());
  return run_blocks<Dynamic, AnyFormat, B>;
}

}  // namespace detail

template <class Models, Backend B>
AnyModel load(const std::filesystem::path& folder, B device, const LoadOptions& options) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder);
  const auto blocks = detail::blocks_of<B>(Models{}, checkpoint->config(), options.only_known, folder);
  LoadOptions loading = options;
  loading.weights = detail::loaded_type(*checkpoint, options.weights);
  if constexpr (requires { device.copy_weights(); }) {
    if (loading.weights == WeightType::as_stored) device.copy_weights();
  }
  return LoadedModel<AnyFormat, B>(detail::make_state<AnyFormat>(std::move(checkpoint), std::move(device), loading),
                                   blocks);
}

}}
