// WeightPlace: where in a model a matrix stands, for backends that hold some of its layers only.
#pragma once

#include <span>

#include "slm/backend/concept.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/architecture.hpp"
#include "slm/formats/adapter.hpp"

namespace slm { inline namespace v0_1 {

struct WeightPlace {
  AdaptedProduct product = AdaptedProduct::embedding;  // that it is the weight of
  int layer = 0;
  int layers = 1;             // of the model
  bool at_both_ends = false;  // an embedding that is the head too
  Heads heads = {};           // of attention
  QkNorm norm = QkNorm::none;

  /// The stage of a pipeline that multiplies by it, or looks it up.
  int stage(int stages) const {
    switch (product) {
      case AdaptedProduct::embedding:
      case AdaptedProduct::project_in: return 0;
      case AdaptedProduct::project_out:
      case AdaptedProduct::head: return stages - 1;
      default: return LayerCut{layers, stages}.stage_of(layer);
    }
  }
};

/// A backend that packs a matrix by its place.
template <class B, class Format>
concept PacksByPlace = requires(B device, std::span<const typename Format::Source> sources, const WeightPlace& place) {
  device.template pack<Format>(sources, place);
};

}}
