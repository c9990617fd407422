// Batch: what one forward() of a model is asked, rows of any sequences, and what it answered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/backend/plan.hpp"
#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/model/sequence.hpp"

namespace slm::inline v0_1 {

struct Ask {
  Want want = Want::nothing;
  int rows = 1;    // of the last so many tokens
  Draw draw = {};  // by which a choice is made
  int steps = 1;   // of choice: so many tokens are chosen one after the other, all but the last of which are appended
};

/// Sequences, what is appended to each, and the answers. Used again, it does not allocate. A sequence is refused twice.
class Batch {
 public:
  /// What is asked of one sequence; for models.
  struct Item {
    Sequence* sequence;
    std::size_t first;  // of its tokens in tokens()
    std::size_t count;
    Ask ask;
    std::size_t answer;  // of its first row in the answers of its kind
  };

  void clear() {
    items_.clear();
    tokens_.clear();
    parents_.clear();
    answers_[0] = answers_[1] = answers_[2] = 0;
  }

  /// Room for so many tokens and rows of logits, so that nothing is allocated later.
  void reserve(int tokens, int rows, int vocab) {
    tokens_.reserve(static_cast<std::size_t>(tokens));
    parents_.reserve(static_cast<std::size_t>(tokens));
    items_.reserve(1);
    grow(logits_, static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab));
    grow(choices_, static_cast<std::size_t>(rows));
  }

  /// Appends tokens to a sequence, which outlives the forward. parents: for each token the index among these of the one
  /// that it follows, -1 for what the sequence holds; empty: each follows the one before. Returns the item's number.
  int add(Sequence& sequence, std::span<const Token> tokens, Ask ask = {}, std::span<const int> parents = {}) {
    Item item{&sequence, tokens_.size(), tokens.size(), ask, 0};
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    parents_.resize(tokens_.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      parents_[item.first + i] = parents.empty() ? static_cast<int>(i) - 1 : i < parents.size() ? parents[i] : unsaid;
    }
    if (ask.want != Want::nothing) {
      std::size_t& answers = answers_[static_cast<int>(ask.want) - 1];
      item.answer = answers;
      answers += static_cast<std::size_t>(std::max(0, ask.rows)) * static_cast<std::size_t>(std::max(1, ask.steps));
    }
    items_.push_back(item);
    return static_cast<int>(items_.size()) - 1;
  }

  int size() const { return static_cast<int>(items_.size()); }

  /// Answers to item i after a forward, until the next clear().
  View<const float, 2> logits(int i) const { return rows_of(i, logits_, vocab_); }  // [rows, vocab]
  View<const float, 2> hidden(int i) const { return rows_of(i, hidden_, width_); }  // [rows, hidden]
  std::span<const Token> choices(int i) const {                                     // [rows], or [steps]
    const Item& item = items_[static_cast<std::size_t>(i)];
    return {choices_.data() + item.answer, static_cast<std::size_t>(item.ask.rows * item.ask.steps)};
  }

  // For models.

  static constexpr int unsaid = -2;  // a parent that add() was not told
  std::span<const Item> items() const { return items_; }
  std::span<const Token> tokens(const Item& item) const { return std::span(tokens_).subspan(item.first, item.count); }
  std::span<const int> parents(const Item& item) const { return std::span(parents_).subspan(item.first, item.count); }

  /// Makes room for the answers: [vocab] of logits, [width] of hidden states.
  void make_room(int vocab, std::int64_t width) {
    vocab_ = vocab;
    width_ = width;
    grow(logits_, answers_[0] * static_cast<std::size_t>(vocab));
    grow(choices_, answers_[1]);
    grow(hidden_, answers_[2] * static_cast<std::size_t>(width));
  }
  float* logits_at(std::size_t answer) { return logits_.data() + answer * static_cast<std::size_t>(vocab_); }
  float* hidden_at(std::size_t answer) { return hidden_.data() + answer * static_cast<std::size_t>(width_); }
  Token* choice_at(std::size_t answer) { return choices_.data() + answer; }

 private:
  template <class T>
  static void grow(std::vector<T>& values, std::size_t size) {
    if (values.size() < size) values.resize(size);
  }

  View<const float, 2> rows_of(int i, const std::vector<float>& all, std::int64_t width) const {
    const Item& item = items_[static_cast<std::size_t>(i)];
    return {all.data() + item.answer * static_cast<std::size_t>(width), item.ask.rows, width};
  }

  std::vector<Item> items_;
  std::vector<Token> tokens_;    // of all items
  std::vector<int> parents_;     // of each token
  std::size_t answers_[3] = {};  // rows of logits, choices, hidden states
  int vocab_ = 0;
  std::int64_t width_ = 0;
  std::vector<float> logits_;   // [rows, vocab]
  std::vector<float> hidden_;   // [rows, hidden]
  std::vector<Token> choices_;  // [rows]
};

}  // namespace slm
