// Lookup: drafts without a model. It proposes what followed an earlier occurrence of the last tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/answer_pool.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/suffix_automaton.hpp"

namespace slm { inline namespace v0_1 {

struct LookupOptions {
  int longest = 16;    // maximum match length, in tokens
  int shortest = 1;    // minimum match length, in tokens
  int pool_bits = 16;  // finished answers are remembered in 2^pool_bits entries of 12 bytes; 0: not at all; at most 24
};

/// Finds the longest suffix of the text that occurred before, in the text itself or in a library, and proposes what
/// followed its latest occurrence; without one, what followed the last tokens in finished answers. It estimates the
/// probability of each token from how often tokens after matches of that length were right in this text. The time per
/// token is independent of the text's length. Reads committed tokens only, so a rollback needs no state.
class Lookup {
 public:
  /// library: an additional text to search, such as text that answers may repeat. Throws decode.long-lookup.
  explicit Lookup(const LookupOptions& options = {}, std::span<const Token> library = {})
      : options_(options), text_(options.longest), record_(at(std::max(options.longest, 0)) + 1) {
    if (library.size() > most_library) {
      throw Error("decode.long-lookup",
                  text("the lookup text has ", library.size(), " tokens, expected at most ", most_library, " tokens"),
                  "Shorten it to the text that answers may repeat");
    }
    if (options.pool_bits > 0) pool_ = std::make_shared<detail::AnswerPool>(options.pool_bits);
    if (library.empty()) return;
    const auto made = std::make_shared<SuffixAutomaton>(options.longest);
    for (const Token token : library) made->append(token);
    library_ = made;
  }

  /// Starts a text. Keeps what was read if it is a prefix of the new text.
  void start(const Request& request) {
    const std::span<const Token> held = text_.text(), prompt = request.prompt;
    if (prompt.size() < held.size() || !std::equal(held.begin(), held.end(), prompt.begin())) forget();
    tenant_ = request.tenant;
    pooled_ = {};
    read(prompt);
  }

  void rewind(int) {}

  /// `context` must begin with the tokens of the last call or of start().
  void propose(std::span<const Token> context, int most, std::vector<Token>& out, std::vector<float>& chances) {
    if (context.size() < text_.text().size()) forget();
    read(context);
    if (match_.length >= std::max(options_.shortest, 1)) {
      const std::span<const Token> next = continuation();
      const std::size_t count = std::min(next.size(), at(std::max(most, 0)));
      out.insert(out.end(), next.begin(), next.begin() + static_cast<std::ptrdiff_t>(count));
      for (std::size_t i = 0; i < count; ++i)
        chances.push_back(chance(match_.length + static_cast<int>(i)));  // an accepted token extends the match
    }
    if (pool_ && match_.length < pool_above) propose_pooled(context, most, out, chances);
  }

  /// Uses no answers of other requests.
  void isolate() { pool_ = nullptr; }

  /// Adds an answer to the pool.
  void finish(std::span<const Token> text, std::size_t prompt) {
    if (pool_) pool_->add(text, prompt, tenant_);
  }

 private:
  static constexpr std::size_t most_library = std::size_t{1} << 24;
  static constexpr int pool_above = 4;  // shorter matches are compared with the pool

  /// Accuracy of the token after a match; older counts decay.
  struct Hits {
    float right = 0, all = 0;

    void note(bool is_right) {
      constexpr float remembered = 64;
      right += is_right ? 1.0f : 0.0f;
      if (++all > remembered) *this = {right / 2, all / 2};
    }
    float chance(float prior) const {
      constexpr float weight = 8;  // weight of the prior, in observations
      return (right + weight * prior) / (all + weight);
    }
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void forget() {
    text_.clear();
    cursor_ = {};
    match_ = {};
    std::fill(record_.begin(), record_.end(), Hits{});
    pooled_hits_ = {};
  }

  void read(std::span<const Token> context) {
    for (const Token token : context.subspan(text_.text().size())) {
      if (match_.length > 0) record_[at(match_.length)].note(continuation().front() == token);
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

  /// Replaces a proposal by the pool's if that is more likely to be right.
  void propose_pooled(std::span<const Token> context, int most, std::vector<Token>& out, std::vector<float>& chances) {
    if (pooled_.size > 0 && context.size() > pooled_.length) {
      pooled_hits_.note(context[pooled_.length] == pooled_.tokens[0]);
    }
    pooled_ = pool_->find(context, most, tenant_);
    if (pooled_.size == 0) return;
    const float trust = pooled_hits_.chance(0.6f);  // in how often the pool was right in this text
    if (!chances.empty() && chances.front() >= pooled_.chances[0] * trust) return;
    out.assign(pooled_.tokens.begin(), pooled_.tokens.begin() + static_cast<std::ptrdiff_t>(pooled_.size));
    chances.clear();
    for (std::size_t i = 0; i < pooled_.size; ++i) chances.push_back(pooled_.chances[i] * (i == 0 ? trust : 1));
  }

  /// Probability that the token after a match of this length is right. The prior was measured on greedy texts of
  /// SmolLM2-135M-Instruct: chat, code, prose, rewriting.
  float chance(int length) const {
    constexpr std::array<float, 13> usual = {0,     0.2f, 0.55f, 0.62f, 0.7f,  0.8f, 0.85f,
                                             0.88f, 0.9f, 0.92f, 0.94f, 0.95f, 0.96f};
    return record_[at(std::min(length, options_.longest))].chance(usual[std::min(at(length), usual.size() - 1)]);
  }

  LookupOptions options_;
  SuffixAutomaton text_;
  std::shared_ptr<const SuffixAutomaton> library_;
  SuffixAutomaton::Cursor cursor_;            // in library_
  SuffixAutomaton::Match match_;              // of the end of the text
  bool in_library_ = false;                   // whether the match is in the library or earlier in the text
  std::vector<Hits> record_;                  // indexed by match length   [longest + 1]
  std::shared_ptr<detail::AnswerPool> pool_;  // shared by all copies; null: none
  std::uint64_t tenant_ = 0;
  detail::AnswerPool::Found pooled_;  // the last proposal of the pool
  Hits pooled_hits_;
};

}}
