// WeightPlace: the role of a matrix in a model, for backends that hold only some layers.
#pragma once

#include <optional>
#include <span>

#include "slm/backend/concept.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/architecture.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 {

struct WeightPlace {
  /// The product of the matrix; none: one of a layer that adapters do not change.
  std::optional<AdaptedProduct> product = AdaptedProduct::embedding;
  int layer = 0;
  int layers = 1;             // number of layers of the model
  bool at_both_ends = false;  // an embedding that is also the head
  Heads heads = {};           // attention heads
  QkNorm norm = QkNorm::none;
  bool whole = false;  // every rank of the stage holds all rows
  bool summed = true;  // outputs of attention and MLP are added to the residual stream without a norm between

  /// The pipeline stage that uses the matrix.
  int stage(int stages) const {
    switch (product.value_or(AdaptedProduct::gate_up)) {
      case AdaptedProduct::embedding:
      case AdaptedProduct::project_in: return 0;
      case AdaptedProduct::project_out:
      case AdaptedProduct::head: return stages - 1;
      default: return LayerCut{layers, stages}.stage_of(layer);
    }
  }
};

/// A backend whose packing depends on the role.
template <class B, class Format>
concept PacksByPlace = requires(B device, std::span<const typename Format::Source> sources, const WeightPlace& place) {
  device.template pack<Format>(sources, place);
};

}}
