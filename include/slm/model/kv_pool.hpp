// KvPool: the memory of keys and values, in pages of 64 positions that sequences share and give back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/backend/plan.hpp"
#include "slm/config/model_config.hpp"
#include "slm/core/architecture.hpp"
#include "slm/core/byte_size.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/kv_format.hpp"
#include "slm/model/prefix_index.hpp"

namespace slm { inline namespace v0_1 {

/// Whose keys and values they are.
struct KvOwner {
  std::string name = {};
  int vocab = 0;
  int context = 0;                                // most tokens of a sequence
  std::shared_future<std::uint64_t> digest = {};  // the same for the same weights on the same kind of backend
};

/// How a model's keys and values fill pages. Layers with the same window are of one kind: a page of a kind holds some
/// 64 positions of all of its layers.
class KvLayout {
 public:
  struct Kind {
    int window = 0;  // 0: the whole text
    int layers = 0;
  };

  KvLayout(const ModelConfig& shape, const ModelSettings& settings, KvFormat format, KvOwner owner = {})
      : owner_(std::make_shared<const KvOwner>(std::move(owner))),
        heads_{.query = shape.heads, .kv = shape.kv_heads, .dim = shape.head_dim},
        norm_(shape.qk_norm),
        format_(format) {
    for (int l = 0; l < shape.layers; ++l) {
      const int window = settings.window_of(l);
      auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& known) { return known.window == window; });
      if (kind == kinds_.end()) kind = kinds_.insert(kinds_.end(), Kind{window, 0});
      layers_.push_back({.kind = static_cast<int>(kind - kinds_.begin()), .index = kind->layers++});
    }
  }

  /// The same keys and values stored otherwise.
  KvLayout in(KvFormat format) const {
    KvLayout other = *this;
    other.format_ = format;
    return other;
  }

  /// Whether both are of one model, in whatever format: pages of one never serve another.
  bool is(const KvLayout& other) const { return owner_ == other.owner_; }
  KvFormat format() const { return format_; }
  const KvOwner& owner() const { return *owner_; }
  std::shared_ptr<const void> identity() const { return owner_; }

  std::span<const Kind> kinds() const { return kinds_; }
  KvLayer layer(int index) const {
    const Place& place = layers_[static_cast<std::size_t>(index)];
    const auto half = static_cast<std::int64_t>(layer_bytes() / 2), first = 2 * half * place.index;
    return {.kind = place.kind, .keys = first, .values = first + half};
  }
  std::size_t page_bytes(int kind) const {
    return layer_bytes() * static_cast<std::size_t>(kinds_[static_cast<std::size_t>(kind)].layers);
  }
  KvPageShape page_shape(int kind) const {
    KvPageShape shape{.of_layers = static_cast<int>(layers_.size()),
                      .head_bytes = static_cast<std::size_t>(kv_head_bytes(format_, heads_.dim)),
                      .heads = heads_,
                      .norm = norm_};
    for (int l = 0; l < shape.of_layers; ++l) {
      if (layers_[static_cast<std::size_t>(l)].kind == kind) shape.layers.push_back(l);
    }
    return shape;
  }

  /// What one sequence takes that is `length` positions long.
  std::size_t bytes_of(std::int64_t length) const {
    std::size_t bytes = 0;
    for (int kind = 0; kind < static_cast<int>(kinds_.size()); ++kind) {
      const int window = kinds_[static_cast<std::size_t>(kind)].window;
      const auto pages = [](std::int64_t positions) { return (positions + page_positions - 1) / page_positions; };
      const std::int64_t kept = pages(length), most = pages(window + longest_rollback) + 1;
      bytes += page_bytes(kind) * static_cast<std::size_t>(window == 0 ? kept : std::min(kept, most));
    }
    return bytes;
  }

  /// Positions that can be taken back without reading a text with a sliding window again: the longest draft, and more.
  static constexpr int longest_rollback = 257;

 private:
  struct Place {
    int kind, index;  // the layer's number among those of its kind
  };

  /// Of one layer in a page.
  std::size_t layer_bytes() const {
    return 2 * static_cast<std::size_t>(heads_.kv) * static_cast<std::size_t>(kv_head_bytes(format_, heads_.dim));
  }

  std::shared_ptr<const KvOwner> owner_;
  Heads heads_;
  QkNorm norm_;
  KvFormat format_;
  std::vector<Kind> kinds_;
  std::vector<Place> layers_;
};

/// Device memory for pages, whatever the device.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  /// Pages one behind the other, which live as long as this. Throws where the device has no more.
  virtual std::byte* allocate(const KvPageShape& shape, std::size_t count) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void read(std::byte* host, const std::byte* from, std::size_t bytes) = 0;
  virtual void write(std::byte* to, const std::byte* host, std::size_t bytes) = 0;
};

/// A page in use. Whoever holds the only reference may write to it.
struct KvPage {
  std::byte* memory = nullptr;  // on the device
};

struct KvPoolOptions {
  /// Most bytes of all pages; 0: of a model on a processor half of the free memory (free_memory()) when the pool is
  /// made, and at least 64 MiB; of one on a device with memory of its own what that has.
  std::size_t memory = 0;
  std::optional<KvFormat> format = std::nullopt;  // of keys and values; none: what the model was loaded with
  bool share_prefixes = false;  // keeps full pages for texts that begin alike, as long as nobody else needs the memory
};

/// A handle: copies share the pages. Any number of threads may use it.
class KvPool {
 public:
  /// Of models that keep no keys and values.
  KvPool() = default;

  KvPool(KvLayout layout, std::unique_ptr<KvMemory> memory, KvPoolOptions options = {}, PrefixHash hash = prefix_hash)
      : state_(std::make_shared<State>(std::move(layout), std::move(memory), options)),
        prefixes_(options.share_prefixes ? std::make_shared<PrefixIndex>(hash) : nullptr) {}

  explicit operator bool() const { return state_ != nullptr; }
  const KvLayout& layout() const { return state_->layout; }

  /// A page whose contents are whatever was there. Throws cache.full when the budget is spent on what texts hold, and
  /// whatever the device throws when its memory is.
  KvPageRef take(int kind) const {
    std::byte* const memory = take_memory(kind);
    std::unique_ptr<KvPage> page;
    try {
      page = std::make_unique<KvPage>(KvPage{memory});
    } catch (...) {
      state_->give(kind, memory);
      throw;
    }
    // A shared_ptr that finds no memory calls the deleter before it throws.
    return {page.release(), [state = state_, kind](const KvPage* used) {
              state->give(kind, used->memory);
              delete used;
            }};
  }

  /// A page of one's own with the same contents.
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

  /// Bytes of pages that somebody holds.
  std::size_t used() const {
    const std::lock_guard lock(state_->mutex);
    return state_->used;
  }
  std::size_t budget() const { return state_->options.memory; }

  /// Of those, bytes of pages that no text holds, which are given up as soon as one needs the memory.
  std::size_t idle() const {
    if (prefixes_ == nullptr) return 0;
    std::size_t bytes = 0;
    const std::vector<std::size_t> pages = prefixes_->idle(layout().kinds().size());
    for (std::size_t kind = 0; kind < pages.size(); ++kind)
      bytes += pages[kind] * layout().page_bytes(static_cast<int>(kind));
    return bytes;
  }
  PrefixStats prefix_stats() const { return prefixes_ == nullptr ? PrefixStats{} : prefixes_->stats(); }

  /// For sequences; null unless options.share_prefixes.
  PrefixIndex* prefixes() const { return prefixes_.get(); }

  /// Whether both are handles of one pool.
  bool operator==(const KvPool&) const = default;

 private:
  struct State {
    State(KvLayout how, std::unique_ptr<KvMemory> where, KvPoolOptions wanted)
        : layout(std::move(how)), memory(std::move(where)), options(wanted), free(layout.kinds().size()) {}

    std::byte* take(int kind) {
      const std::lock_guard lock(mutex);
      const std::size_t bytes = layout.page_bytes(kind);
      if (options.memory != 0 && used + bytes > options.memory) {
        throw Error("cache.full",
                    text("the KV cache may take ", text_of_bytes(options.memory), ", of which ", text_of_bytes(used),
                         " are in use, and one more page takes ", text_of_bytes(bytes)),
                    "Give it more memory, end sequences, or shorten them");
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
      free[static_cast<std::size_t>(kind)].push_back(page);  // has room: see grow()
      used -= layout.page_bytes(kind);
    }

    /// Takes memory for some pages at once, ever more of it, so that a device is seldom asked.
    void grow(int kind, std::vector<std::byte*>& pages) {
      const std::size_t bytes = layout.page_bytes(kind);
      constexpr std::size_t most = std::size_t{64} << 20;
      std::size_t wanted = std::clamp(used, bytes, std::max(bytes, most));
      if (options.memory != 0) wanted = std::min(wanted, std::max(bytes, options.memory - used));
      const std::size_t count = wanted / bytes;
      pages.reserve(all + count);
      const auto slab = reinterpret_cast<std::uintptr_t>(memory->allocate(layout.page_shape(kind), count));
      all += count;
      // Of several ranks' pages this is a name, at which no object lies: integers may be added to it, pointers not.
      for (std::size_t i = count; i-- > 0;) pages.push_back(reinterpret_cast<std::byte*>(slab + i * bytes));
    }

    KvLayout layout;
    std::unique_ptr<KvMemory> memory;
    KvPoolOptions options;
    std::mutex mutex;
    std::size_t used = 0;                       // bytes of pages in use
    std::size_t all = 0;                        // pages ever made
    std::vector<std::vector<std::byte*>> free;  // of each kind
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

  std::shared_ptr<State> state_;           // its pages refer to it
  std::shared_ptr<PrefixIndex> prefixes_;  // which holds pages, and so is no part of that
};

}}
