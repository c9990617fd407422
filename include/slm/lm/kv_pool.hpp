// KvPool: KV cache memory that sequences of one model share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "slm/core/types.hpp"
#include "slm/lm/kv_format.hpp"

namespace slm { inline namespace v0_1 {

struct KvPoolOptions {
  /// Maximum bytes of all pages. 0: half of the free memory (free_memory()) at construction, at least 64 MiB; on a
  /// device with separate memory: no limit besides that memory.
  std::size_t memory = 0;
  std::optional<KvFormat> format =
      std::nullopt;  // storage format of keys and values; none: the model's default (LoadOptions::cache_format)
  bool share_prefixes = false;  // keeps pages for sequences with the same prefix, until the memory is needed
};

struct PrefixStats {
  std::int64_t hits = 0;            // full pages reused
  std::int64_t misses = 0;          // pages looked up and not found
  std::int64_t evictions = 0;       // pages evicted because the pool was full
  std::int64_t pages = 0;           // pages in the index
  std::int64_t part_positions = 0;  // positions reused from the beginning of a page

  std::int64_t hit_positions() const { return hits * page_positions + part_positions; }
  std::int64_t queried_positions() const { return (hits + misses) * page_positions + part_positions; }
};

namespace detail {

struct SequenceState;

/// KV cache memory of one model. Implemented by models. Thread-safe.
class KvCache {
 public:
  virtual ~KvCache() = default;
  /// Returns the state of an empty sequence with its keys and values in this cache.
  virtual std::unique_ptr<SequenceState> sequence() const = 0;
  virtual KvFormat format() const = 0;
  virtual std::size_t bytes_of(std::int64_t length) const = 0;
  virtual std::size_t used() const = 0;
  virtual std::size_t budget() const = 0;
  virtual std::size_t idle() const = 0;
  virtual bool shares_prefixes() const = 0;
  virtual PrefixStats prefix_stats() const = 0;
  virtual std::uint64_t model_digest() const = 0;
};

}  // namespace detail

/// A handle: copies share the memory. Thread-safe. An empty handle has operator bool, == and
/// shares_prefixes() only.
class KvPool {
 public:
  /// An empty handle, for models without a KV cache.
  KvPool() = default;
  explicit KvPool(std::shared_ptr<const detail::KvCache> cache) : cache_(std::move(cache)) {}

  explicit operator bool() const { return cache_ != nullptr; }
  /// Returns true if both are handles of one pool.
  bool operator==(const KvPool&) const = default;

  KvFormat format() const { return cache_->format(); }
  /// Bytes that a sequence of `length` positions needs.
  std::size_t bytes_of(std::int64_t length) const { return cache_->bytes_of(length); }
  /// Bytes in use by sequences or kept for prefix sharing.
  std::size_t used() const { return cache_->used(); }
  /// Maximum bytes; 0: no limit.
  std::size_t budget() const { return cache_->budget(); }
  /// Bytes of used() that are kept for prefix sharing only, and freed when a sequence needs memory.
  std::size_t idle() const { return cache_->idle(); }
  bool shares_prefixes() const { return cache_ != nullptr && cache_->shares_prefixes(); }
  PrefixStats prefix_stats() const { return cache_->prefix_stats(); }
  /// Equal for equal weights on backends of one kind. The first call reads all weights.
  std::uint64_t model_digest() const { return cache_->model_digest(); }

  /// For sequences and models; null: an empty handle.
  const detail::KvCache* cache() const { return cache_.get(); }

 private:
  std::shared_ptr<const detail::KvCache> cache_;
};

}}
