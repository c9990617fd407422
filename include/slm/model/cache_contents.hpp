// CacheContents: what the KV cache still holds, for models whose cache can become useless while their text goes on.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/types.hpp"

namespace slm {

/// Two architectures lose cache entries: a sliding window's ring overwrites old positions, which a long truncate() asks
/// for again; and LongRoPE rotates with another table beyond the original context. Then the model reads its text again
/// from the first token, which gives the same bits as if it had never been lost. For all others this remembers nothing.
class CacheContents {
 public:
  CacheContents(const ModelSettings& settings, int context, int ring)
      : window_(ring < context ? settings.window : 0), ring_(ring) {
    if (settings.rope_scaling.kind == RopeScaling::Kind::longrope) {
      original_context_ = static_cast<int>(settings.rope_scaling.original_context);
    }
    if (replayable()) tokens_.reserve(static_cast<std::size_t>(context));
  }

  /// Tokens up to which LongRoPE uses the first table.
  int original_context() const { return original_context_; }

  /// The text so far is `length` tokens and goes on with these.
  void remember(int length, std::span<const Token> tokens) {
    if (!replayable()) return;
    tokens_.resize(static_cast<std::size_t>(length));
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }

  void truncate(int length) { valid_ = std::min(valid_, length); }

  /// Whether a step at `position` finds all it needs.
  bool serves(int position, bool beyond) const {
    if (!replayable()) return true;
    const int oldest = window_ != 0 ? std::max(0, position + 1 - window_) : 0;  // that the step will read
    return position > 0 && beyond_ == beyond && valid_ >= position && (window_ == 0 || oldest >= end_ - ring_);
  }

  /// Nothing is held; what comes is made with this table.
  void reset(bool beyond) {
    beyond_ = beyond;
    valid_ = end_ = 0;
  }

  /// The first `count` tokens, to be read again.
  std::span<const Token> first(int count) const { return std::span(tokens_).first(static_cast<std::size_t>(count)); }

  /// Keys and values of positions up to `end` have been written.
  void wrote(int end) {
    valid_ = end;
    end_ = std::max(end_, end);
  }

 private:
  bool replayable() const { return window_ != 0 || original_context_ != std::numeric_limits<int>::max(); }

  int window_;  // 0: nothing is overwritten
  int ring_;
  int original_context_ = std::numeric_limits<int>::max();
  bool beyond_ = false;
  int valid_ = 0;              // leading positions that belong to the text
  int end_ = 0;                // behind the last position ever written: end_ - ring_ and less are overwritten
  std::vector<Token> tokens_;  // of the text
};

}  // namespace slm
