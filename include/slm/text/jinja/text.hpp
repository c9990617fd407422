// Text that knows which of its bytes the template wrote.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// Where a byte comes from: the template, or the variables that it was given.
enum class Origin : bool { written, given };

/// UTF-8 with the origin of every byte.
class Text {
 public:
  struct Run {
    std::size_t end;
    Origin origin;
  };

  Text() = default;
  Text(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  /// Bytes of memory, about.
  std::size_t memory() const { return bytes_.size() + runs_.size() * sizeof(Run); }

  /// Neighbours differ in origin.
  const std::vector<Run>& runs() const { return runs_; }

  void append(std::string_view bytes, Origin origin) {
    if (bytes.empty()) return;
    bytes_ += bytes;
    extend(origin);
  }

  void append(const Text& other) { append(other, 0, other.size()); }

  void append(const Text& other, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    for (std::size_t run = other.run_of(begin); begin < end; ++run) {
      const std::size_t stop = std::min(end, other.runs_[run].end);
      bytes_.append(other.bytes_, begin, stop - begin);
      extend(other.runs_[run].origin);
      begin = stop;
    }
  }

  Text part(std::size_t begin, std::size_t end) const {
    Text out;
    out.append(*this, begin, end);
    return out;
  }

  Origin origin_at(std::size_t position) const { return runs_[run_of(position)].origin; }

  /// Whether the template wrote all bytes of [begin, end).
  bool is_written(std::size_t begin, std::size_t end) const {
    if (begin >= end) return true;
    const Run& run = runs_[run_of(begin)];
    return run.origin == Origin::written && run.end >= end;
  }

  void resize(std::size_t size) {
    bytes_.resize(size);
    while (!runs_.empty() && (runs_.size() > 1 ? runs_[runs_.size() - 2].end : 0) >= size) runs_.pop_back();
    if (!runs_.empty()) runs_.back().end = size;
  }

  void reserve(std::size_t size) { bytes_.reserve(size); }

 private:
  std::size_t run_of(std::size_t position) const {
    if (runs_.front().end > position) return 0;
    const auto after = [](std::size_t at, const Run& run) { return at < run.end; };
    return static_cast<std::size_t>(std::upper_bound(runs_.begin(), runs_.end(), position, after) - runs_.begin());
  }

  void extend(Origin origin) {
    if (!runs_.empty() && runs_.back().origin == origin) {
      runs_.back().end = bytes_.size();
    } else {
      runs_.push_back({bytes_.size(), origin});
    }
  }

  std::string bytes_;
  std::vector<Run> runs_;
};

}}}
