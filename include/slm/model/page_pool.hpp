// PagePool: KV cache memory in pages of 64 positions, shared by sequences and reference-counted; the KvCache of models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/config/model_config.hpp"
#include "slm/core/architecture.hpp"
#include "slm/core/byte_size.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/kv_format.hpp"
#include "slm/lm/kv_pool.hpp"
#include "slm/model/prefix_index.hpp"

namespace slm { inline namespace v0_1 {

/// Identifies the model that owns a KV cache.
struct KvOwner {
  std::string name = {};
  int vocab = 0;
  int context = 0;                                // maximum tokens of a sequence
  std::shared_future<std::uint64_t> digest = {};  // equal for equal weights on backends of one kind
};

/// The layout of a model's keys and values in pages. Layers with the same window and heads form one kind. A page of a
/// kind holds 64 positions of all layers of that kind that keep their own keys and values. The last kind of a model
/// with recurrent layers is that of state pages: one holds the states of all recurrent layers after one position.
class KvLayout {
 public:
  struct Kind {
    int window = 0;  // 0: full attention
    int layers = 0;
    Heads heads = {};
  };

  KvLayout(const ModelConfig& shape, const ModelSettings& settings, KvFormat format, KvOwner owner = {})
      : owner_(std::make_shared<const KvOwner>(std::move(owner))),
        norm_(shape.qk_norm),
        format_(format),
        parts_(shape.is_latent() ? 1 : 2) {
    for (int l = 0; l < shape.layers; ++l) {
      if (const int source = kv_layer_of(shape, settings, l); source >= 0 && source != l) {
        layers_.push_back(layers_[static_cast<std::size_t>(source)]);
        layers_.back().borrows = true;
        continue;
      }
      Place place{.kind = -1,
                  .index = 0,
                  .state = static_cast<std::int64_t>(state_bytes_),
                  .recurs = shape.has_mixer(l),
                  .borrows = false};
      if (place.recurs) {
        const auto bytes = static_cast<std::size_t>(shape.mixer.state_floats()) * sizeof(float);
        state_bytes_ += (bytes + 63) / 64 * 64;  // a multiple of a cache line
      }
      if (shape.has_attention(l)) {
        const int window = settings.window_of(l);
        const Heads heads{.query = shape.heads, .kv = shape.kv_heads_of(l), .dim = shape.head_dim_of(l)};
        auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& known) {
          return known.window == window && known.heads.kv == heads.kv && known.heads.dim == heads.dim;
        });
        if (kind == kinds_.end()) kind = kinds_.insert(kinds_.end(), Kind{window, 0, heads});
        place.kind = static_cast<int>(kind - kinds_.begin());
        place.index = kind->layers++;
      }
      layers_.push_back(place);
    }
    if (state_bytes_ == 0) return;
    state_kind_ = static_cast<int>(kinds_.size());
    kinds_.push_back({});
  }

  /// Returns the same layout with another storage format.
  KvLayout in(KvFormat format) const {
    KvLayout other = *this;
    other.format_ = format;
    return other;
  }

  /// Returns true if both layouts belong to one model, in any format. Pages of one model never serve another.
  bool is(const KvLayout& other) const { return owner_ == other.owner_; }
  KvFormat format() const { return format_; }
  const KvOwner& owner() const { return *owner_; }
  std::shared_ptr<const void> identity() const { return owner_; }

  std::span<const Kind> kinds() const { return kinds_; }
  /// The kind of state pages; -1: none.
  int state_kind() const { return state_kind_; }
  KvLayer layer(int index) const {
    const Place& place = layers_[static_cast<std::size_t>(index)];
    const auto bytes = static_cast<std::int64_t>(place.kind < 0 ? 0 : layer_bytes(place.kind));
    const std::int64_t first = bytes * place.index;
    return {.kind = place.kind, .keys = first, .values = first + (parts_ == 1 ? 0 : bytes / 2), .state = place.state};
  }
  std::size_t page_bytes(int kind) const {
    if (kind == state_kind_) return state_bytes_;
    return layer_bytes(kind) * static_cast<std::size_t>(kinds_[static_cast<std::size_t>(kind)].layers);
  }
  KvPageShape page_shape(int kind) const {
    const Heads& heads = kinds_[static_cast<std::size_t>(kind)].heads;
    const bool states = kind == state_kind_;
    KvPageShape shape{.of_layers = static_cast<int>(layers_.size()),
                      .head_bytes = static_cast<std::size_t>(kv_head_bytes(format_, heads.dim)),
                      .parts = parts_,
                      .heads = heads,
                      .norm = norm_,
                      .whole = states || parts_ == 1};
    for (int l = 0; l < shape.of_layers; ++l) {
      const Place& place = layers_[static_cast<std::size_t>(l)];
      if ((states ? place.recurs : place.kind == kind) && !place.borrows) shape.layers.push_back(l);
    }
    if (states) {
      shape.parts = 1;
      shape.heads = {.kv = 1};
      shape.head_bytes = state_bytes_ / shape.layers.size();
    }
    return shape;
  }

  /// Bytes that a sequence of `length` positions needs.
  std::size_t bytes_of(std::int64_t length) const {
    // A step reads one state and writes another.
    const std::int64_t snapshots = std::min<std::int64_t>(length, snapshot_range) / snapshot_distance();
    std::size_t bytes = state_bytes_ * static_cast<std::size_t>(2 + snapshots);
    for (int kind = 0; kind < static_cast<int>(kinds_.size()); ++kind) {
      if (kind == state_kind_) continue;
      const int window = kinds_[static_cast<std::size_t>(kind)].window;
      const auto pages = [](std::int64_t positions) { return (positions + page_positions - 1) / page_positions; };
      const std::int64_t kept = pages(length), most = pages(window + longest_rollback) + 1;
      bytes += page_bytes(kind) * static_cast<std::size_t>(window == 0 ? kept : std::min(kept, most));
    }
    return bytes;
  }

  /// Positions that can be truncated from a sliding-window sequence without recomputing it. Covers the longest draft.
  static constexpr int longest_rollback = 257;

  /// A sequence keeps the states after multiples of this number of positions, a multiple of a page. States that are
  /// smaller than the keys and values of a page are kept after every page.
  int snapshot_distance() const {
    std::size_t page = 0;
    for (int kind = 0; kind < state_kind_; ++kind) page += page_bytes(kind);
    return state_bytes_ <= page ? page_positions : 4 * page_positions;
  }
  /// Positions before the end of a sequence whose snapshots it keeps.
  static constexpr int snapshot_range = 16 * page_positions;

 private:
  struct Place {
    int kind, index;     // the layer's index among the layers of its kind; kind -1: no attention
    std::int64_t state;  // offset of its state
    bool recurs;         // has a state
    bool borrows;        // the place is another layer's
  };

  /// Bytes of one layer in a page of its kind.
  std::size_t layer_bytes(int kind) const {
    const Heads& heads = kinds_[static_cast<std::size_t>(kind)].heads;
    return parts_ * static_cast<std::size_t>(heads.kv) * static_cast<std::size_t>(kv_head_bytes(format_, heads.dim));
  }

  std::shared_ptr<const KvOwner> owner_;
  QkNorm norm_;
  KvFormat format_;
  std::size_t parts_;  // see KvPageShape
  std::vector<Kind> kinds_;
  std::vector<Place> layers_;
  std::size_t state_bytes_ = 0;  // of all recurrent layers
  int state_kind_ = -1;
};

/// Device memory for pages.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  /// Allocates contiguous pages, which live as long as this object. Throws if the device is out of memory.
  virtual std::byte* allocate(const KvPageShape& shape, std::size_t count) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void read(std::byte* host, const std::byte* from, std::size_t bytes) = 0;
  virtual void write(std::byte* to, const std::byte* host, std::size_t bytes) = 0;
};

/// A page in use. The holder of the only reference may write to it.
struct KvPage {
  std::byte* memory = nullptr;  // device address
};

/// A handle: copies share the pages. Thread-safe.
class PagePool {
 public:
  PagePool(KvLayout layout, std::unique_ptr<KvMemory> memory, KvPoolOptions options = {})
      : state_(std::make_shared<State>(std::move(layout), std::move(memory), options)),
        prefixes_(options.share_prefixes ? std::make_shared<PrefixIndex>() : nullptr) {}

  const KvLayout& layout() const { return state_->layout; }

  /// Allocates a page with unspecified contents. Throws cache.full if sequences hold the whole budget, and the device's
  /// error if the device is out of memory.
  KvPageRef take(int kind) const {
    std::byte* const memory = take_memory(kind);
    std::unique_ptr<KvPage> page;
    try {
      page = std::make_unique<KvPage>(KvPage{memory});
    } catch (...) {
      state_->give(kind, memory);
      throw;
    }
    // If shared_ptr fails to allocate, it calls the deleter before it throws.
    return {page.release(), [state = state_, kind](const KvPage* used) {
              state->give(kind, used->memory);
              delete used;
            }};
  }

  /// Returns a new page with the same contents.
  KvPageRef copy(int kind, const KvPage& page) const {
    KvPageRef fresh = take(kind);
    state_->memory->copy(fresh->memory, page.memory, layout().page_bytes(kind));
    return fresh;
  }

  void read(int kind, const KvPage& page, std::byte* host) const {
    state_->memory->read(host, page.memory, layout().page_bytes(kind));
  }
  void write(int kind, const KvPage& page, const std::byte* host) const {
    state_->memory->write(page.memory, host, layout().page_bytes(kind));
  }

  /// Bytes of pages that have references.
  std::size_t used() const {
    const std::lock_guard lock(state_->mutex);
    return state_->used;
  }
  std::size_t budget() const { return state_->options.memory; }

  /// Bytes of those pages that only the prefix index holds. They are freed when a sequence needs memory.
  std::size_t idle() const {
    if (prefixes_ == nullptr) return 0;
    std::size_t bytes = 0;
    const std::vector<std::size_t> pages = prefixes_->idle(layout().kinds().size());
    for (std::size_t kind = 0; kind < pages.size(); ++kind)
      bytes += pages[kind] * layout().page_bytes(static_cast<int>(kind));
    return bytes;
  }
  PrefixStats prefix_stats() const { return prefixes_ == nullptr ? PrefixStats{} : prefixes_->stats(); }

  /// For sequences; null without options.share_prefixes.
  PrefixIndex* prefixes() const { return prefixes_.get(); }

  /// Returns true if both are handles of one pool.
  bool operator==(const PagePool&) const = default;

 private:
  struct State {
    State(KvLayout how, std::unique_ptr<KvMemory> where, KvPoolOptions wanted)
        : layout(std::move(how)), memory(std::move(where)), options(wanted), free(layout.kinds().size()) {}

    std::byte* take(int kind) {
      const std::lock_guard lock(mutex);
      const std::size_t bytes = layout.page_bytes(kind);
      if (options.memory != 0 && used + bytes > options.memory) {
        throw Error("cache.full",
                    text("the KV cache is limited to ", text_of_bytes(options.memory),
                         "; expected room for one more page, found ", text_of_bytes(used), " in use, and a page takes ",
                         text_of_bytes(bytes)),
                    "Increase the KV cache memory, or end or shorten sequences");
      }
      std::vector<std::byte*>& pages = free[static_cast<std::size_t>(kind)];
      if (pages.empty()) grow(kind, pages);
      std::byte* const page = pages.back();
      pages.pop_back();
      used += bytes;
      return page;
    }

    void give(int kind, std::byte* page) {
      const std::lock_guard lock(mutex);
      free[static_cast<std::size_t>(kind)].push_back(page);  // capacity was reserved by grow()
      used -= layout.page_bytes(kind);
    }

    /// Allocates several pages at once, in increasing amounts, to call the device rarely.
    void grow(int kind, std::vector<std::byte*>& pages) {
      const std::size_t bytes = layout.page_bytes(kind);
      constexpr std::size_t most = std::size_t{64} << 20;
      std::size_t wanted = std::clamp(used, bytes, std::max(bytes, most));
      if (options.memory != 0) wanted = std::min(wanted, std::max(bytes, options.memory - used));
      const std::size_t count = wanted / bytes;
      pages.reserve(all + count);
      const auto slab = reinterpret_cast<std::uintptr_t>(memory->allocate(layout.page_shape(kind), count));
      all += count;
      // With several ranks a page address is only a handle, without memory behind it: use integer arithmetic, not
      // pointers.
      for (std::size_t i = count; i-- > 0;) pages.push_back(reinterpret_cast<std::byte*>(slab + i * bytes));
    }

    KvLayout layout;
    std::unique_ptr<KvMemory> memory;
    KvPoolOptions options;
    std::mutex mutex;
    std::size_t used = 0;                       // bytes of pages in use
    std::size_t all = 0;                        // pages allocated so far
    std::vector<std::vector<std::byte*>> free;  // per kind
  };

  std::byte* take_memory(int kind) const {
    for (;;) {
      try {
        return state_->take(kind);
      } catch (...) {
        if (prefixes_ == nullptr || !prefixes_->give_up()) throw;
      }
    }
  }

  std::shared_ptr<State> state_;           // pages refer to the state
  std::shared_ptr<PrefixIndex> prefixes_;  // holds pages, so it is not part of the state
};

}}
