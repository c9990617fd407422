// NgramDrafter: prompt lookup. It proposes what followed an earlier occurrence of the last tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/suffix_automaton.hpp"

namespace slm { inline namespace v0_1 {

/// Options of prompt lookup.
struct Lookup {
  int longest = 16;  // maximum match length, in tokens
  int shortest = 1;  // minimum match length, in tokens
  float row_cost =
      0.125f;  // initial cost of verifying a token, in plain steps, until measured; 0: always the longest draft
};

/// Finds the longest suffix of the text that occurred before, and proposes what followed its latest occurrence. The
/// draft length maximises expected throughput, given how often tokens after matches of that length were right in this
/// text. Cost per token is independent of the text's length. Reads committed tokens only, so a rollback needs no state.
class NgramDrafter {
 public:
  /// library: an additional text to search, such as text that answers may repeat. Throws decode.long-lookup.
  explicit NgramDrafter(const Lookup& lookup = {}, std::span<const Token> library = {})
      : lookup_(lookup),
        row_cost_(lookup.row_cost),
        text_(lookup.longest),
        record_(static_cast<std::size_t>(std::max(lookup.longest, 0)) + 1) {
    if (library.size() > most_library) {
      throw Error("decode.long-lookup",
                  text("the lookup text has ", library.size(), " tokens, expected at most ", most_library, " tokens"),
                  "Shorten it to the text that answers may repeat");
    }
    if (library.empty()) return;
    const auto made = std::make_shared<SuffixAutomaton>(lookup.longest);
    for (const Token token : library) made->append(token);
    library_ = made;
  }

  /// Starts a text. Keeps what was read if it is a prefix of the new text.
  void start(std::span<const Token> prompt) {
    const std::span<const Token> held = text_.text();
    if (prompt.size() < held.size() || !std::equal(held.begin(), held.end(), prompt.begin())) forget();
    read(prompt);
  }

  void rewind(int) {}

  void set_row_cost(std::optional<float> cost) {
    if (lookup_.row_cost > 0) row_cost_ = cost.value_or(lookup_.row_cost);
  }

  /// `context` must begin with the tokens of the last call or of start().
  void propose(std::span<const Token> context, int most, std::vector<Token>& out) {
    if (context.size() < text_.text().size()) forget();
    read(context);
    if (match_.length < std::max(lookup_.shortest, 1)) return;
    const std::span<const Token> next = continuation();
    const int count = draft_length(static_cast<int>(std::min<std::size_t>(next.size(), at(std::max(most, 0)))));
    out.insert(out.end(), next.begin(), next.begin() + count);
  }

 private:
  static constexpr std::size_t most_library = std::size_t{1} << 24;

  /// Accuracy of the token after a match; older counts decay.
  struct Hits {
    float right = 0, all = 0;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void forget() {
    text_.clear();
    cursor_ = {};
    match_ = {};
    std::fill(record_.begin(), record_.end(), Hits{});
  }

  void read(std::span<const Token> context) {
    for (const Token token : context.subspan(text_.text().size())) {
      if (match_.length > 0) note(continuation().front() == token);
      match_ = text_.append(token);
      in_library_ = false;
      if (!library_) continue;
      cursor_ = library_->read(cursor_, token);
      const SuffixAutomaton::Match other = library_->match(cursor_);
      in_library_ = other.length > match_.length && other.end < library_->text().size();
      if (in_library_) match_ = other;
    }
  }

  std::span<const Token> continuation() const {
    return (in_library_ ? library_->text() : text_.text()).subspan(match_.end);
  }

  void note(bool right) {
    constexpr float remembered = 64;
    Hits& hits = record_[at(match_.length)];
    hits.right += right ? 1.0f : 0.0f;
    if (++hits.all > remembered) hits = {hits.right / 2, hits.all / 2};
  }

  /// Probability that the token after a match of this length is right. The prior was measured on greedy texts of
  /// SmolLM2-135M-Instruct: chat, code, prose, rewriting.
  float chance(int length) const {
    constexpr std::array<float, 13> usual = {0,     0.2f, 0.55f, 0.62f, 0.7f,  0.8f, 0.85f,
                                             0.88f, 0.9f, 0.92f, 0.94f, 0.95f, 0.96f};
    constexpr float weight = 8;  // weight of the prior, in observations
    const Hits& hits = record_[at(std::min(length, lookup_.longest))];
    return (hits.right + weight * usual[std::min(at(length), usual.size() - 1)]) / (hits.all + weight);
  }

  /// Extends the draft while expected tokens per step divided by the step's cost increases.
  int draft_length(int most) const {
    float right = 1, tokens = 1;
    int count = 0;
    for (; count < most; ++count) {
      right *= chance(match_.length + count);  // an accepted token extends the match
      const float cost = 1 + row_cost_ * static_cast<float>(count);
      if (right * cost <= row_cost_ * tokens) break;
      tokens += right;
    }
    return count;
  }

  Lookup lookup_;
  float row_cost_;  // current value
  SuffixAutomaton text_;
  std::shared_ptr<const SuffixAutomaton> library_;
  SuffixAutomaton::Cursor cursor_;  // in library_
  SuffixAutomaton::Match match_;    // of the end of the text
  bool in_library_ = false;         // whether the match is in the library or earlier in the text
  std::vector<Hits> record_;        // indexed by match length   [longest + 1]
};

}}
