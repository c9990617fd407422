// load() itself: for programs of slm::compiled that give it other models or devices than that library has compiled.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "slm/backend/select.hpp"
#include "slm/config/known_models.hpp"
#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/any_model.hpp"
#include "slm/model/linear_source.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "slm/model/stored_type.hpp"

namespace slm::inline v0_1 {

namespace detail {

/// Erased without its shape, a model is one type for each format.
template <class Format, class Shape, class B>
AnyModel load_as(Shape shape, std::shared_ptr<const Checkpoint> checkpoint, B device, const LoadOptions& options) {
  return LoadedModel<Format, B>(Model<Shape, Format, B>(shape, std::move(checkpoint), std::move(device), options));
}

template <class Shape, class B>
AnyModel load_stored(Shape shape, std::shared_ptr<const Checkpoint> checkpoint, B device, const LoadOptions& options) {
  // A config is compiled for what models are published in today; in the other formats its shape runs as Dynamic, with
  // the same bits.
  const auto loaded = [&]<class Format>(Format) -> AnyModel {
    constexpr bool rare = std::is_same_v<Format, Fp32> || std::is_same_v<Format, Fp16>;
    if constexpr (rare && StaticConfig<Shape>) {
      return load_as<Format>(Dynamic{shape.value}, std::move(checkpoint), std::move(device), options);
    } else {
      return load_as<Format>(shape, std::move(checkpoint), std::move(device), options);
    }
  };
  const bool as_stored = options.weights == WeightType::as_stored, int4 = has_int4_layers(*checkpoint);
  if (int4 || (as_stored && has_blocks(*checkpoint))) {
    if (!as_stored) {
      throw Error("model.quantized", text("'", checkpoint->folder().string(), "' holds 4-bit weights"),
                  "Load it with WeightType::as_stored, or take the floating-point checkpoint of the model");
    }
    return loaded(AwqInt4<>{});
  }
  const WeightType type = as_stored ? stored_type(*checkpoint) : options.weights;
  if (type == WeightType::f16) return loaded(Fp16{});
  if (type == WeightType::bf16) return loaded(Bf16{});
  return loaded(Fp32{});
}

}  // namespace detail

template <class Models, Backend B>
AnyModel load(const std::filesystem::path& folder, B device, const LoadOptions& options) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder);
  std::optional<AnyModel> model;
  visit(Models{}, checkpoint->config(),
        [&](auto shape) { model = detail::load_stored(shape, checkpoint, device, options); });
  if (model) return *std::move(model);
  if (options.only_known) throw not_registered(Models{}, checkpoint->config(), folder.string());
  return detail::load_stored(Dynamic{checkpoint->config()}, checkpoint, device, options);
}

}  // namespace slm
