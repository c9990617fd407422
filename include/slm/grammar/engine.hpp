// Engine: the automaton that constraints of one grammar share. It grows as texts need it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "slm/grammar/automaton.hpp"
#include "slm/grammar/compiled.hpp"
#include "slm/grammar/masks.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class Engine {
 public:
  explicit Engine(const Compiled& compiled)
      : expressions(compiled.expressions),
        automaton(expressions),
        root(compiled.root),
        json_character_(compiled.json_character) {}

  std::size_t memory() const { return expressions.memory() + automaton.memory() + (masks_ ? masks_->memory() : 0); }

  /// Limits the time of the work that follows.
  void limit_time() { expressions.set_deadline(Deadline(expressions.limits().mask_seconds)); }

  /// Masks of the vocabulary that was used last.
  Masks& masks(const std::shared_ptr<const TrieState>& trie) {
    if (trie_ != trie) {
      masks_.emplace(expressions, automaton, json_character_, *trie);
      trie_ = trie;
    }
    return *masks_;
  }

  std::mutex mutex;
  Expressions expressions;
  Automaton automaton;
  const Expression root;

 private:
  Expression json_character_;
  std::shared_ptr<const TrieState> trie_;
  std::optional<Masks> masks_;
};

class EnginePool {
 public:
  explicit EnginePool(Compiled compiled) : compiled_(std::move(compiled)) {}

  const Compiled& compiled() const { return compiled_; }

  /// The engine of a new constraint. One that has grown far is replaced; its constraints keep it.
  std::shared_ptr<Engine> take() {
    const std::lock_guard lock(mutex_);
    if (engine_ != nullptr) {
      const std::lock_guard engine_lock(engine_->mutex);
      const GrammarLimits& limits = compiled_.expressions.limits();
      const std::size_t added = engine_->expressions.size() - compiled_.expressions.size();
      if (engine_->memory() < limits.memory / 2 && added < limits.states / 2) return engine_;
    }
    return engine_ = std::make_shared<Engine>(compiled_);
  }

 private:
  const Compiled compiled_;
  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
};

}}}
