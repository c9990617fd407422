// KvPageShape: what a page of keys and values holds, and which part of it a rank does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 {

/// A page holds some layers of a model, those with the same window, one behind the other: of each the keys of all
/// heads, then the values.
struct KvPageShape {
  std::vector<int> layers = {};  // ascending
  int of_layers = 0;             // of the model
  std::size_t head_bytes = 0;    // of the keys, or of the values, of one head
  Heads heads = {};
  QkNorm norm = QkNorm::none;

  std::size_t layer_bytes() const { return 2 * static_cast<std::size_t>(heads.kv) * head_bytes; }
  std::size_t bytes() const { return layers.size() * layer_bytes(); }

  /// What a rank holds of a page: of neighbouring layers the keys and values of neighbouring heads.
  struct Part {
    std::size_t first = 0;  // layers before them
    std::size_t layers = 0;
    HeadRange kv = {};
    std::size_t head_bytes = 0;
    std::size_t layer_bytes = 0;  // of the page

    std::size_t bytes() const { return 2 * layers * run_bytes(); }

    /// The runs of bytes that lie together: use(bytes before it in the page, in the part, its bytes).
    template <class Use>
    void for_each_run(Use use) const {
      for (std::size_t half = 0; half < 2 * layers; ++half)
        use((2 * first + half) * layer_bytes / 2 + static_cast<std::size_t>(kv.first) * head_bytes, half * run_bytes(),
            run_bytes());
    }

   private:
    std::size_t run_bytes() const { return static_cast<std::size_t>(kv.count()) * head_bytes; }
  };

  /// Of so many stages of a pipeline, each of so many lanes. The layers of a stage lie together. No stage, -1, has
  /// none.
  Part part_of(int stage, int stages, int lane, int lanes) const {
    if (stage < 0) return {};
    const LayerCut cut{of_layers, stages};
    const auto before = [&](int layer) {
      return static_cast<std::size_t>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
    };
    const std::size_t first = before(cut.first(stage));
    return {.first = first,
            .layers = before(cut.first(stage + 1)) - first,
            .kv = HeadCut(heads, norm, lanes).kv_of(lane),
            .head_bytes = head_bytes,
            .layer_bytes = layer_bytes()};
  }
};

/// A backend that wants to know what its pages hold, as it may not hold all of it.
template <class B>
concept SharesPages = requires(B device, const KvPageShape& shape, std::size_t count) {
  device.take_pages(shape, count);
};

}}
