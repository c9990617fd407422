// Batch: what one forward() of a model is asked, rows of any sequences, and what it answered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/backend/plan.hpp"
#include "slm/core/draw.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/model/sequence.hpp"

namespace slm { inline namespace v0_1 {

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
    for (int kind = 0; kind < 3; ++kind) answers_[kind] = answered_[kind] = 0;
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
    std::size_t* const answers = ask.want == Want::nothing ? nullptr : &answers_[static_cast<int>(ask.want) - 1];
    if (answers != nullptr) item.answer = *answers;
    items_.push_back(item);
    if (answers != nullptr) *answers += rows_of(item);
    return static_cast<int>(items_.size()) - 1;
  }

  int size() const { return static_cast<int>(items_.size()); }

  /// Answers to item i, of the kind that it asked for, after a forward and until the next clear(). Throw batch.answer.
  View<const float, 2> logits(int i) const {  // [rows, vocab]
    return {answer_of(i, Want::logits, logits_, vocab_), items_[static_cast<std::size_t>(i)].ask.rows, vocab_};
  }
  View<const float, 2> hidden(int i) const {  // [rows, hidden]
    return {answer_of(i, Want::hidden, hidden_, width_), items_[static_cast<std::size_t>(i)].ask.rows, width_};
  }
  std::span<const Token> choices(int i) const {  // [rows], or [steps]
    const Token* const first = answer_of(i, Want::choice, choices_, 1);
    return {first, rows_of(items_[static_cast<std::size_t>(i)])};
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
    std::copy_n(answers_, 3, answered_);
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

  /// Rows of an item's answer, each for one token.
  static std::size_t rows_of(const Item& item) {
    return static_cast<std::size_t>(std::max(0, item.ask.rows)) * static_cast<std::size_t>(std::max(1, item.ask.steps));
  }

  /// The first of item i's answers of this kind.
  template <class T>
  const T* answer_of(int i, Want want, const std::vector<T>& all, std::int64_t width) const {
    const bool known = i >= 0 && i < size();
    if (!known || items_[static_cast<std::size_t>(i)].ask.want != want) throw no_answer(i, want);
    const Item& item = items_[static_cast<std::size_t>(i)];
    const std::size_t each = static_cast<std::size_t>(width), rows = rows_of(item);
    if (rows > 0 && (item.answer + rows > answered_[static_cast<int>(want) - 1] || each == 0)) throw no_answer(i, want);
    return all.data() + item.answer * each;
  }

  Error no_answer(int i, Want want) const {
    constexpr const char* names[] = {"nothing", "logits", "a choice", "hidden states"};
    const char* const asked = names[static_cast<int>(want)];
    if (i < 0 || i >= size()) {
      return {"batch.answer", text("expected an item of 0 to ", size() - 1, ", found ", i, " of ", size(), " items"),
              "Pass the number that add() has returned since the last clear()"};
    }
    const char* const found = names[static_cast<int>(items_[static_cast<std::size_t>(i)].ask.want)];
    return {"batch.answer",
            text("expected the answer of item ", i, " to be ", asked, ", found that it asked for ", found,
                 found == asked ? " and no forward has answered it" : ""),
            "Set Ask::want to the kind that is read, and call forward() before"};
  }

  std::vector<Item> items_;
  std::vector<Token> tokens_;     // of all items
  std::vector<int> parents_;      // of each token
  std::size_t answers_[3] = {};   // rows of logits, choices, hidden states
  std::size_t answered_[3] = {};  // those that there is room for
  int vocab_ = 0;
  std::int64_t width_ = 0;
  std::vector<float> logits_;   // [rows, vocab]
  std::vector<float> hidden_;   // [rows, hidden]
  std::vector<Token> choices_;  // [rows]
};

}}
