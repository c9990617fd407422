// KvPageShape: the contents of a KV cache page, and a rank's part of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 {

/// A page holds the layers with one window and one shape of heads, contiguously. Each layer has the keys of all heads,
/// then the values. In a page of recurrent states, each layer has one part of one head: its state.
struct KvPageShape {
  std::vector<int> layers = {};  // ascending
  int of_layers = 0;             // number of layers in the model
  std::size_t head_bytes = 0;    // bytes of the keys, or of the values, of one head
  std::size_t parts = 2;         // keys and values; 1: they are the same rows, or a state
  Heads heads = {};
  QkNorm norm = QkNorm::none;
  bool whole = false;  // every rank of a stage holds all heads

  std::size_t layer_bytes() const { return parts * static_cast<std::size_t>(heads.kv) * head_bytes; }
  std::size_t bytes() const { return layers.size() * layer_bytes(); }

  /// A rank's part of a page: keys and values of adjacent heads in adjacent layers.
  struct Part {
    std::size_t first = 0;  // number of layers before them
    std::size_t layers = 0;
    std::size_t parts = 0;  // of a layer
    HeadRange kv = {};
    std::size_t head_bytes = 0;
    std::size_t layer_bytes = 0;  // bytes of a layer in the whole page

    std::size_t bytes() const { return parts * layers * run_bytes(); }

    /// Calls use(offset in the page, offset in the part, bytes) for each contiguous run.
    template <class Use>
    void for_each_run(Use use) const {
      for (std::size_t run = 0; run < parts * layers; ++run)
        use((parts * first + run) * (layer_bytes / parts) + static_cast<std::size_t>(kv.first) * head_bytes,
            run * run_bytes(), run_bytes());
    }

   private:
    std::size_t run_bytes() const { return static_cast<std::size_t>(kv.count()) * head_bytes; }
  };

  /// The part of a lane (rank in a stage) in a pipeline of `stages` stages. The layers of a stage are adjacent. stage
  /// -1: empty.
  Part part_of(int stage, int stages, int lane, int lanes) const {
    if (stage < 0) return {};
    const LayerCut cut{of_layers, stages};
    const auto before = [&](int layer) {
      return static_cast<std::size_t>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
    };
    const std::size_t first = before(cut.first(stage));
    const HeadRange all_heads{0, heads.kv};  // nvcc 13.0 crashes if it is a temporary
    return {.first = first,
            .layers = before(cut.first(stage + 1)) - first,
            .parts = parts,
            .kv = whole ? all_heads : HeadCut(heads, norm, lanes).kv_of(lane),
            .head_bytes = head_bytes,
            .layer_bytes = layer_bytes()};
  }
};

/// A backend that needs the contents of its pages, because it may hold only a part.
template <class B>
concept SharesPages = requires(B device, const KvPageShape& shape, std::size_t count) {
  device.take_pages(shape, count);
};

}}
