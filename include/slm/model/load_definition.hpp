// load() itself: for programs of slm::compiled that give it other models or devices than that library has compiled.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "slm/backend/select.hpp"
#include "slm/config/known_models.hpp"
#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/any_model.hpp"
#include "slm/model/linear_source.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"

namespace slm {

namespace detail {

/// Whether any matrix lies in GGUF's blocks.
inline bool has_blocks(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& named) { return is_blocked(named.second->dtype); });
}

/// That of the embedding; fp32, which holds every weight exactly, where a GGUF file has matrices of other types too.
inline WeightType stored_type(const Checkpoint& checkpoint) {
  const TensorName table = checkpoint.names().weights(Role::embedding).front();
  const DType type = checkpoint.tensor(table.name, table.shape).dtype;
  const auto differs = [type](const auto& named) {
    return named.second->shape.size() == 2 && named.second->dtype != type;
  };
  const auto& tensors = checkpoint.tensors();
  if (checkpoint.gguf() && std::any_of(tensors.begin(), tensors.end(), differs)) return WeightType::f32;
  switch (type) {
    case DType::f16: return WeightType::f16;
    case DType::bf16: return WeightType::bf16;
    default: return WeightType::f32;
  }
}

template <class Shape, class B>
AnyModel load_as(Shape shape, std::shared_ptr<const Checkpoint> checkpoint, B device, const LoadOptions& options) {
  // Erased without its shape, a model is one type for each format.
  const auto loaded = [&]<class Format>(Format) -> AnyModel {
    return LoadedModel<Format, B>(Model<Shape, Format, B>(shape, std::move(checkpoint), std::move(device), options));
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
        [&](auto shape) { model = detail::load_as(shape, checkpoint, device, options); });
  if (model) return *std::move(model);
  if (options.only_known) throw not_registered(Models{}, checkpoint->config(), folder.string());
  return detail::load_as(Dynamic{checkpoint->config()}, checkpoint, device, options);
}

}  // namespace slm
