// Session: a model and one sequence.
#pragma once

#include <span>
#include <utility>

#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// The single-sequence interface. Results are valid until the next call.
template <LanguageModel M>
class Session {
 public:
  explicit Session(M model) : model_(std::move(model)), sequence_(model_.sequence()) {}

  const M& model() const { return model_; }
  const ModelInfo& info() const { return model_.info(); }
  const Sequence& sequence() const { return sequence_; }
  int length() const { return sequence_.length(); }
  std::span<const Token> tokens() const { return sequence_.tokens(); }
  void truncate(int length) { sequence_.truncate(length); }
  void expect_truncation(int length) { sequence_.expect_truncation(length); }

  /// Reserves memory for forwards of `tokens` tokens with logits for `rows` rows.
  void reserve(int tokens, int rows) { batch_.reserve(tokens, rows, info().vocab); }

  /// Appends tokens and returns the logits of the last `rows` of them, [rows, vocab]. Throws like
  /// LanguageModel::forward.
  View<const float, 2> forward(std::span<const Token> tokens, int rows) {
    ask(tokens, {.result = rows == 0 ? RowResult::nothing : RowResult::logits, .rows = rows});
    return rows == 0 ? View<const float, 2>{nullptr, 0, info().vocab} : batch_.logits(0);
  }

  /// Appends tokens and returns the chosen successor of each of the last `rows` tokens, [rows]. Requires
  /// ModelInfo::chooses.
  std::span<const Token> choose(std::span<const Token> tokens, int rows, const Draw& draw) {
    ask(tokens, {.result = RowResult::choice, .rows = rows, .draw = draw});
    return batch_.choices(0);
  }

  /// Appends tokens, then chooses `count` tokens one after another and appends all but the last. Stops at a row without
  /// a usable choice (no_token).
  std::span<const Token> propose(std::span<const Token> tokens, int count, const Draw& draw) {
    ask(tokens, {.result = RowResult::choice, .draw = draw, .chain = count});
    return batch_.choices(0);
  }

 private:
  void ask(std::span<const Token> tokens, const ResultSpec& what) {
    batch_.clear();
    batch_.add(sequence_, tokens, what);
    model_.forward(batch_);
  }

  M model_;
  Sequence sequence_;
  Batch batch_;
};

}}
