// A KV cache of one layer in any format, for tests of backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "slm/backend/kv_rows.hpp"
#include "support/random_layer.hpp"

namespace slm::testing {

/// Pages of one sequence. Unwritten values are NaN, in int8 through their scales.
class FormatCache {
 public:
  FormatCache(Heads heads, int context, KvFormat format)
      : heads_(heads),
        format_(format),
        pages_(static_cast<std::size_t>((context + page_positions - 1) / page_positions),
               std::vector<std::byte>(2 * half(), std::byte{0xff})) {}

  const Heads& heads() const { return heads_; }
  KvLayer layer() const { return {.kind = 0, .keys = 0, .values = static_cast<std::int64_t>(half())}; }

  KvFormat format() const { return format_; }

  TestPlan plan(int rows, int position) {
    TestPlan plan;
    plan.format = format_;
    plan.add(table(), rows, position);
    return plan;
  }

  std::vector<std::byte*> table() {
    std::vector<std::byte*> table;
    for (auto& page : pages_) table.push_back(page.empty() ? nullptr : page.data());
    return table;
  }

  const std::vector<std::vector<std::byte>>& pages() const { return pages_; }
  void set_page(std::size_t page, std::vector<std::byte> bytes) { pages_[page] = std::move(bytes); }
  /// Frees a page.
  void release(int page) { pages_[static_cast<std::size_t>(page)].clear(); }

  std::vector<float> row(bool keys, int head, int position) {
    std::vector<float> numbers(static_cast<std::size_t>(heads_.dim));
    place(keys, head, position).get(numbers.data());
    return numbers;
  }

  /// Writes positions first.. last - 1, each with numbers of a different magnitude.
  void randomize(Random& random, int first, int last, float scale) {
    for_all(first, last, [&](const backend::KvRow& row) {
      const float own = scale * (0.1f + std::abs(random()));
      row.put(random.vector(static_cast<std::size_t>(heads_.dim), own).data());
    });
  }

  /// Marks positions first.. last - 1 as unwritten.
  void forget(int first, int last) {
    const std::vector<float> nothing(static_cast<std::size_t>(heads_.dim), std::nanf(""));
    for_all(first, last, [&](const backend::KvRow& row) { row.put(nothing.data()); });
  }

  /// int8: each position of a page gets the scale of the next one.
  void shift_scales(bool keys) {
    for (auto& page : pages_) {
      for (int h = 0; h < heads_.kv; ++h) {
        std::byte* const scales = page.data() + (keys ? 0 : half()) +
                                  static_cast<std::size_t>(h * kv_head_bytes(format_, heads_.dim)) +
                                  static_cast<std::size_t>(page_positions * heads_.dim);
        std::memmove(scales, scales + sizeof(float), (page_positions - 1) * sizeof(float));
      }
    }
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> bytes;
    for (const auto& page : pages_) bytes.insert(bytes.end(), page.begin(), page.end());
    return bytes;
  }

 private:
  std::size_t half() const {
    return static_cast<std::size_t>(heads_.kv) * static_cast<std::size_t>(kv_head_bytes(format_, heads_.dim));
  }

  backend::KvRow place(bool keys, int head, int position) {
    std::byte* const page = pages_[static_cast<std::size_t>(position / page_positions)].data();
    return {format_, page + (keys ? 0 : half()) + head * kv_head_bytes(format_, heads_.dim), position % page_positions,
            heads_.dim};
  }

  template <class Use>
  void for_all(int first, int last, Use use) {
    for (int p = first; p < last; ++p) {
      for (int h = 0; h < heads_.kv; ++h) {
        for (const bool keys : {true, false}) use(place(keys, h, p));
      }
    }
  }

  Heads heads_;
  KvFormat format_;
  std::vector<std::vector<std::byte>> pages_;  // [2, kv, ...] as KvLayer says
};

}  // namespace slm::testing
