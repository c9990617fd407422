// KvPageShape: what a page of keys and values holds, and which part of it a stage of layers does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/backend/row_cut.hpp"

namespace slm::inline v0_1 {

/// A page holds some layers of a model, those with the same window, one behind the other.
struct KvPageShape {
  std::vector<int> layers = {};  // ascending
  int of_layers = 0;             // of the model
  std::size_t layer_bytes = 0;

  std::size_t bytes() const { return layers.size() * layer_bytes; }

  struct Part {
    std::size_t first = 0;  // bytes from the beginning of a page
    std::size_t bytes = 0;
  };
  /// The layers of a stage of a pipeline lie together. No stage, -1, has none.
  Part part_of(int stage, int stages) const {
    if (stage < 0) return {};
    const LayerCut cut{of_layers, stages};
    const auto before = [&](int layer) {
      return layer_bytes *
             static_cast<std::size_t>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
    };
    const std::size_t first = before(cut.first(stage));
    return {first, before(cut.first(stage + 1)) - first};
  }
};

/// A backend that wants to know what its pages hold, as it may not hold all of it.
template <class B>
concept SharesPages = requires(B device, const KvPageShape& shape, std::size_t count) {
  device.take_pages(shape, count);
};

}  // namespace slm
