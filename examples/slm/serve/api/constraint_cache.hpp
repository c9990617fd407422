// ConstraintCache: the constraints of recent answers, so that a grammar that returns is compiled once.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slm/chat/answer_grammar.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/grammar.hpp"
#include "slm/text/tokenizer.hpp"

namespace serve {

/// Thread-safe. Holds a limited number of constraints, those used last.
class ConstraintCache {
 public:
  explicit ConstraintCache(std::size_t most = 32) : most_(most) {}

  /// The constraint with this key: everything that it depends on. make() makes the constraint of a new key, which may
  /// be null, and may throw. tags: special tokens that are text. Every call has the same tokenizer, and the same tags
  /// or none.
  slm::ConstraintRef get(std::string_view key, const slm::Tokenizer& tokenizer, std::span<const slm::Token> tags,
                         const std::function<slm::ConstraintRef(const slm::TokenTrie&)>& make) {
    std::optional<slm::TokenTrie>& tokens = tags.empty() ? tokens_ : tagged_tokens_;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = by_key_.find(key); found != by_key_.end()) {
        recent_.splice(recent_.begin(), recent_, found->second);
        return recent_.front().constraint;
      }
      if (!tokens) tokens = slm::tokens_with_tags(tokenizer, tags);
    }
    slm::ConstraintRef made = make(*tokens);  // other requests need not wait
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->constraint;
    recent_.push_front({std::string{key}, std::move(made)});
    by_key_.emplace(recent_.front().key, recent_.begin());
    if (recent_.size() > most_) {
      by_key_.erase(recent_.back().key);
      recent_.pop_back();
    }
    return recent_.front().constraint;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return recent_.size();
  }

 private:
  struct Entry {
    std::string key;
    slm::ConstraintRef constraint;
  };

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::optional<slm::TokenTrie> tokens_, tagged_tokens_;                     // made for the first constraint
  std::list<Entry> recent_;                                                  // the one used last is the first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;  // views of the entries' keys
};

}  // namespace serve
