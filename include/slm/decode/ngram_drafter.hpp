// Prompt lookup: a drafter that repeats what followed the last tokens where they stood before.
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

/// How prompt lookup drafts.
struct Lookup {
  int longest = 16;         // tokens of a match that count
  int shortest = 1;         // tokens that must match
  float row_cost = 0.125f;  // of verifying a token, in plain steps, until it was measured; 0: drafts are as long as
                            // they may be, whatever it costs
};

/// Finds the longest ending of the text that it held before, and drafts what followed it the last time: as many tokens
/// as pay for their verification, by how often the token after a match of that length was right in this text so far. A
/// token costs the same however long the text is. It reads committed tokens only, so it has no state to roll back.
class NgramDrafter {
 public:
  /// library: a text to look in besides, whose tokens are likely to come again. Throws decode.long-lookup.
  explicit NgramDrafter(const Lookup& lookup = {}, std::span<const Token> library = {})
      : lookup_(lookup),
        row_cost_(lookup.row_cost),
        text_(lookup.longest),
        record_(static_cast<std::size_t>(std::max(lookup.longest, 0)) + 1) {
    if (library.size() > most_library) {
      throw Error("decode.long-lookup",
                  text("the text to look up has ", library.size(), " tokens, at most ", most_library, " are expected"),
                  "Cut it down to what the answers may repeat");
    }
    if (library.empty()) return;
    const auto made = std::make_shared<SuffixAutomaton>(lookup.longest);
    for (const Token token : library) made->append(token);
    library_ = made;
  }

  /// A text begins. What was read stays where the text goes on from it.
  void start(std::span<const Token> prompt) {
    const std::span<const Token> held = text_.text();
    if (prompt.size() < held.size() || !std::equal(held.begin(), held.end(), prompt.begin())) forget();
    read(prompt);
  }

  void rewind(int) {}

  void set_row_cost(std::optional<float> cost) {
    if (lookup_.row_cost > 0) row_cost_ = cost.value_or(lookup_.row_cost);
  }

  /// `context` begins with the tokens of the last call, or of start().
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

  /// How often the token after a match was right; of late, as old counts fade.
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

  /// The chance that the token after a match of this length is right. Before there is a record it is what was seen in
  /// greedy texts of SmolLM2-135M-Instruct: chat, code, prose, paragraphs rewritten.
  float chance(int length) const {
    constexpr std::array<float, 13> usual = {0,     0.2f, 0.55f, 0.62f, 0.7f,  0.8f, 0.85f,
                                             0.88f, 0.9f, 0.92f, 0.94f, 0.95f, 0.96f};
    constexpr float weight = 8;  // as if seen so many times
    const Hits& hits = record_[at(std::min(length, lookup_.longest))];
    return (hits.right + weight * usual[std::min(at(length), usual.size() - 1)]) / (hits.all + weight);
  }

  /// A token is drafted while that raises the tokens of a step by more than its cost: the text's speed is the number of
  /// tokens a step is expected to give over what the step costs.
  int draft_length(int most) const {
    float right = 1, tokens = 1;
    int count = 0;
    for (; count < most; ++count) {
      right *= chance(match_.length + count);  // an accepted token makes the match longer
      const float cost = 1 + row_cost_ * static_cast<float>(count);
      if (right * cost <= row_cost_ * tokens) break;
      tokens += right;
    }
    return count;
  }

  Lookup lookup_;
  float row_cost_;  // at present
  SuffixAutomaton text_;
  std::shared_ptr<const SuffixAutomaton> library_;
  SuffixAutomaton::Cursor cursor_;  // in library_
  SuffixAutomaton::Match match_;    // of the text's end
  bool in_library_ = false;         // where the match stands: there, or earlier in the text
  std::vector<Hits> record_;        // by length of the match   [longest + 1]
};

}}
