// Processor: converts a row of logits to the distribution of the next token. Plain decoding, drafting and verification
// use this one pipeline; lossless means equal in distribution to plain decoding with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/constraint_track.hpp"
#include "slm/decode/distribution.hpp"
#include "slm/decode/logits_scan.hpp"
#include "slm/decode/sampling.hpp"

namespace slm { inline namespace v0_1 {

/// Holds the text so far (prompt, output, tentative draft tokens) and its token counts for penalties. Tentative tokens
/// are pushed and popped in stack order, so each row of a verification sees exactly its own prefix.
class Processor {
 public:
  /// Starts a request. vocab: of the target. expected: maximum number of tokens that will be pushed.
  void start(const Sampling& sampling, int vocab, std::span<const Token> prompt, std::size_t expected) {
    sampling_ = &sampling;
    draw_ = draw_of(sampling, vocab);
    history_.clear();
    history_.reserve(prompt.size() + expected);
    history_.assign(prompt.begin(), prompt.end());
    counts_.clear();
    distinct_.clear();
    if (sampling.penalises()) {
      counts_.assign(static_cast<std::size_t>(vocab), {});
      distinct_.reserve(std::min(prompt.size() + expected, static_cast<std::size_t>(vocab)));
      for (const Token token : prompt) {
        Uses& uses = counts_[static_cast<std::size_t>(token)];
        if (!uses.in_prompt) distinct_.push_back(token);
        uses.in_prompt = true;
      }
    }
    constraint_.start(nullptr, vocab, {}, 0);
    if (edits()) edited_.reserve(static_cast<std::size_t>(vocab));
    if (!sampling.greedy()) pool_.reserve(pool_size(static_cast<std::size_t>(vocab)));
  }

  /// Constrains the text after start(); see ConstraintTrack::start.
  void constrain(const ConstraintRef& constraint, std::span<const Token> ends, std::size_t tentative) {
    constraint_.start(constraint, draw_.vocab, ends, tentative);
    if (edits()) edited_.reserve(static_cast<std::size_t>(draw_.vocab));
  }
  /// The constraint of the text; its functions require on().
  detail::ConstraintTrack& constraint() { return constraint_; }
  /// Whether the constraint permits nothing more, because the text is complete.
  bool is_complete() { return constraint_.on() && constraint_.is_complete(); }
  /// Whether it permits no id below `vocab`.
  bool forbids_all(std::size_t vocab) { return constraint_.on() && constraint_.forbids_all(vocab); }

  std::span<const Token> history() const { return history_; }

  void push(Token token) {
    history_.push_back(token);
    if (constraint_.on()) constraint_.push(token);
    if (counts_.empty()) return;
    Uses& uses = counts_[static_cast<std::size_t>(token)];
    if (!uses.in_prompt && uses.generated == 0) distinct_.push_back(token);
    ++uses.generated;
  }

  void pop() {
    const Token token = history_.back();
    history_.pop_back();
    if (constraint_.on()) constraint_.pop();
    if (counts_.empty()) return;
    Uses& uses = counts_[static_cast<std::size_t>(token)];
    --uses.generated;
    if (!uses.in_prompt && uses.generated == 0) distinct_.pop_back();  // in stack order it is the last one
  }

  /// The greedy choice after the current history; no_token if the row is invalid (see find_peak).
  Token greedy(std::span<const float> row) { return find_peak(edited(row)).token; }

  /// Computes the distribution after the current history. Returns false if the row is invalid. Temperature 0 gives all
  /// weight to one token.
  bool distribution(std::span<const float> raw, Distribution& out) {
    out.clear();
    const std::span<const float> row = edited(raw);
    const Peak peak = find_peak(row);
    if (peak.token == no_token) return false;
    if (sampling_->greedy()) {
      out.add(peak.token, 1.0);
      return true;
    }
    const auto weight = [&](float logit) { return weight_of(logit, peak.logit, draw_.scale); };
    const auto take = [&](Token id, std::uint64_t value) {
      if (value >= draw_.min_weight) out.add(id, static_cast<double>(value));
    };
    const bool cuts_k = draw_.top_k > 0 && static_cast<std::size_t>(draw_.top_k) < row.size();
    if (!cuts_k && draw_.top_p == 0) {  // no ranking needed, and ids are in order
      for (std::size_t id = 0; id < row.size(); ++id) take(static_cast<Token>(id), weight(row[id]));
      return true;
    }
    pool_.clear();
    if (cuts_k) {
      keep_top_k(row);
      for (Candidate& candidate : pool_) candidate.weight = weight(candidate.logit);
    } else {
      for (std::size_t id = 0; id < row.size(); ++id) {
        pool_.push_back({weight(row[id]), row[id], static_cast<Token>(id)});
      }
    }
    if (draw_.top_p != 0) keep_top_p();
    std::sort(pool_.begin(), pool_.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    for (const Candidate& candidate : pool_) take(candidate.token, candidate.weight);
    return true;
  }

  /// Returns the row itself, or a copy with penalties, the caller's edits and the constraint applied.
  std::span<const float> edited(std::span<const float> row) {
    if (!edits()) return row;
    edited_.assign(row.begin(), row.end());
    for (const Token token : distinct_) {
      const auto id = static_cast<std::size_t>(token);
      if (id >= edited_.size()) continue;  // a draft's row may be shorter than the vocabulary
      const Uses& uses = counts_[id];
      float& logit = edited_[id];
      logit = logit > 0 ? logit / sampling_->repetition_penalty : logit * sampling_->repetition_penalty;
      if (uses.generated > 0) {
        logit -= sampling_->presence_penalty + sampling_->frequency_penalty * static_cast<float>(uses.generated);
      }
    }
    if (sampling_->adjust_logits) sampling_->adjust_logits(history_, edited_);
    if (constraint_.on()) constraint_.apply(edited_);
    return edited_;
  }

  /// The draw parameters if a model may choose tokens itself, by the constraint's masks if there is one; nothing if
  /// logits are edited here.
  std::optional<Draw> draw() const { return changes_logits() ? std::nullopt : std::optional(draw_); }

  /// Maximum number of tokens in a distribution.
  std::size_t support(std::size_t vocab) const {
    const auto k = static_cast<std::size_t>(sampling_->top_k);
    return sampling_->greedy() ? 1 : k > 0 ? std::min(k, vocab) : vocab;
  }

 private:
  struct Uses {
    bool in_prompt = false;
    std::int32_t generated = 0;
  };
  struct Candidate {
    std::uint64_t weight = 0;
    float logit = 0;
    Token token = 0;
  };

  static bool likelier(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  }

  bool changes_logits() const { return sampling_->penalises() || sampling_->adjust_logits; }
  bool edits() const { return changes_logits() || constraint_.on(); }

  std::size_t pool_size(std::size_t vocab) const {
    const auto k = static_cast<std::size_t>(sampling_->top_k);
    if (k > 0 && k < vocab) return std::min(2 * k + 64, vocab + 1);
    return draw_.top_p != 0 ? vocab : 0;
  }

  /// Fills pool_ with the k highest logits; ties keep the lowest id. Linear time: when the pool of 2k is full, the
  /// lower half is removed and the entry threshold rises.
  void keep_top_k(std::span<const float> row) {
    const auto k = static_cast<std::size_t>(sampling_->top_k);
    const std::size_t capacity = pool_size(row.size());
    float bar = -std::numeric_limits<float>::infinity();
    const auto shrink = [&] {
      if (pool_.size() <= k) return;
      const auto last = pool_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
      std::nth_element(pool_.begin(), last, pool_.end(), likelier);
      pool_.resize(k);
      bar = pool_.back().logit;
    };
    for (std::size_t id = 0; id < row.size(); ++id) {
      if (!(row[id] > bar)) continue;  // an equal logit has a higher id than all k kept ones
      pool_.push_back({0, row[id], static_cast<Token>(id)});
      if (pool_.size() == capacity) shrink();
    }
    shrink();
  }

  /// Keeps the smallest set of most likely candidates whose share of the weight reaches top_p.
  void keep_top_p() {
    std::uint64_t total = 0;
    for (const Candidate& candidate : pool_) total += candidate.weight;
    const std::uint64_t wanted = draw_.wanted(total);
    // Candidates below this weight sum to less than total - wanted, so the set is complete without them.
    const std::uint64_t dust = (total - wanted) / (2 * pool_.size());
    float bar = -std::numeric_limits<float>::infinity();
    for (const Candidate& candidate : pool_) {
      bar = std::max(bar, candidate.weight < dust ? candidate.logit : bar);
    }
    std::erase_if(pool_, [bar](const Candidate& candidate) { return candidate.logit <= bar; });
    auto first = pool_.begin();
    auto last = pool_.end();
    std::uint64_t sum = 0;       // weight of [pool_.begin(), first), which all stay
    while (last - first > 32) {  // quickselect by weight
      const auto middle = first + (last - first) / 2;
      std::nth_element(first, middle, last, likelier);
      std::uint64_t half = 0;
      for (auto at = first; at != middle; ++at) half += at->weight;
      if (sum + half >= wanted) {
        last = middle;
      } else {
        sum += half;
        first = middle;
      }
    }
    std::sort(first, last, likelier);
    while (first != last && sum < wanted) sum += (first++)->weight;
    pool_.erase(first, pool_.end());
  }

  const Sampling* sampling_ = nullptr;
  Draw draw_;
  detail::ConstraintTrack constraint_;
  std::vector<Token> history_;
  std::vector<Uses> counts_;     // [vocab]; empty without penalties
  std::vector<Token> distinct_;  // tokens that occur, in order of first occurrence
  std::vector<float> edited_;
  std::vector<Candidate> pool_;
};

}}
