// Batch: the input and output of one forward(): tokens of any number of sequences, and the requested results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/lm/row_result.hpp"
#include "slm/lm/sequence.hpp"

namespace slm { inline namespace v0_1 {

/// Sequences, the tokens to append to each, and the results. Reuse does not allocate. Adding a sequence twice is an
/// error.
/// Public members: models write the results by one half of them, callers read them by the other.
class Batch {
 public:
  /// The input for one sequence; used by models.
  struct Item {
    Sequence* sequence;
    std::size_t first;  // index of its first token in tokens()
    std::size_t count;
    ResultSpec spec;
    std::size_t answer;  // index of its first row among the results of its kind
  };

  void clear() {
    items_.clear();
    tokens_.clear();
    parents_.clear();
    before_masks_ = nullptr;
    for (int kind = 0; kind < 3; ++kind) answers_[kind] = answered_[kind] = 0;
  }

  /// Reserves memory for `tokens` tokens and `rows` rows of logits, so that forward() does not allocate.
  void reserve(int tokens, int rows, int vocab) {
    tokens_.reserve(static_cast<std::size_t>(tokens));
    parents_.reserve(static_cast<std::size_t>(tokens));
    items_.reserve(1);
    grow(logits_, static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab));
    grow(choices_, static_cast<std::size_t>(rows));
  }

  /// Appends tokens to a sequence, which must outlive the forward. parents: for each token the index of its predecessor
  /// among these tokens, or -1 for the sequence's last token; empty: each token follows the previous one. Returns the
  /// item's index.
  int add(Sequence& sequence, std::span<const Token> tokens, ResultSpec spec = {}, std::span<const int> parents = {}) {
    Item item{&sequence, tokens_.size(), tokens.size(), spec, 0};
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    parents_.resize(tokens_.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      parents_[item.first + i] = parents.empty() ? static_cast<int>(i) - 1 : i < parents.size() ? parents[i] : unsaid;
    }
    std::size_t* const answers =
        spec.result == RowResult::nothing ? nullptr : &answers_[static_cast<int>(spec.result) - 1];
    if (answers != nullptr) item.answer = *answers;
    items_.push_back(item);
    if (answers != nullptr) *answers += rows_of(item);
    return static_cast<int>(items_.size()) - 1;
  }

  int size() const { return static_cast<int>(items_.size()); }

  /// Sets a function that a forward calls before it reads masks, while the device computes: masks need to be complete
  /// when it returns. clear() removes it.
  void before_masks(std::function<void()> wait) { before_masks_ = std::move(wait); }

  /// Results of item i, of the requested kind, valid from a forward to the next clear(). These throw batch.answer.
  View<const float, 2> logits(int i) const {  // [rows, vocab]
    return {answer_of(i, RowResult::logits, logits_, vocab_), items_[static_cast<std::size_t>(i)].spec.rows, vocab_};
  }
  View<const float, 2> hidden(int i) const {  // [rows, hidden]
    return {answer_of(i, RowResult::hidden, hidden_, width_), items_[static_cast<std::size_t>(i)].spec.rows, width_};
  }
  std::span<const Token> choices(int i) const {  // [rows], or [steps]
    const Token* const first = answer_of(i, RowResult::choice, choices_, 1);
    return {first, rows_of(items_[static_cast<std::size_t>(i)])};
  }

  // The following members are for models.

  static constexpr int unsaid = -2;  // a parent that add() did not receive
  std::span<const Item> items() const { return items_; }
  std::span<const Token> tokens(const Item& item) const { return std::span(tokens_).subspan(item.first, item.count); }
  std::span<const int> parents(const Item& item) const { return std::span(parents_).subspan(item.first, item.count); }

  const std::function<void()>& before_masks() const { return before_masks_; }

  /// Allocates the results: [vocab] per row of logits, [width] per hidden state.
  void reserve(int vocab, std::int64_t width) {
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

  /// Number of result rows of an item, one per token.
  static std::size_t rows_of(const Item& item) {
    return static_cast<std::size_t>(std::max(0, item.spec.rows)) *
           static_cast<std::size_t>(std::max(1, item.spec.chain));
  }

  /// The first result of item i, which must be of this kind.
  template <class T>
  const T* answer_of(int i, RowResult result, const std::vector<T>& all, std::int64_t width) const {
    const bool known = i >= 0 && i < size();
    if (!known || items_[static_cast<std::size_t>(i)].spec.result != result) throw no_answer(i, result);
    const Item& item = items_[static_cast<std::size_t>(i)];
    const std::size_t each = static_cast<std::size_t>(width), rows = rows_of(item);
    if (rows > 0 && (item.answer + rows > answered_[static_cast<int>(result) - 1] || each == 0))
      throw no_answer(i, result);
    return all.data() + item.answer * each;
  }

  Error no_answer(int i, RowResult result) const {
    constexpr const char* names[] = {"nothing", "logits", "a choice", "hidden states"};
    const char* const asked = names[static_cast<int>(result)];
    if (i < 0 || i >= size()) {
      return {"batch.answer", text("expected an item of 0 to ", size() - 1, ", found ", i, " of ", size(), " items"),
              "Pass the index that add() returned since the last clear()"};
    }
    const char* const found = names[static_cast<int>(items_[static_cast<std::size_t>(i)].spec.result)];
    return {"batch.answer",
            text("expected the result of item ", i, " to be ", asked, ", found that it requested ", found,
                 found == asked ? " and no forward has computed it" : ""),
            "Set ResultSpec::result to the kind that is read, and call forward() first"};
  }

  std::vector<Item> items_;
  std::vector<Token> tokens_;  // tokens of all items
  std::vector<int> parents_;   // parent of each token
  std::function<void()> before_masks_;
  std::size_t answers_[3] = {};   // rows of logits, choices, hidden states
  std::size_t answered_[3] = {};  // rows that are allocated
  int vocab_ = 0;
  std::int64_t width_ = 0;
  std::vector<float> logits_;   // [rows, vocab]
  std::vector<float> hidden_;   // [rows, hidden]
  std::vector<Token> choices_;  // [rows]
};

}}
