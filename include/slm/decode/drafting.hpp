// Drafting: the draft's part of a request's rounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/answer.hpp"
#include "slm/decode/coin.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/decode/model_drafter.hpp"
#include "slm/decode/rules.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

template <class DrafterType, VerificationRule Rule>
class Drafting {
 public:
  static constexpr bool in_batches = BatchedDrafter<DrafterType>;

  /// The answer must outlive this.
  Drafting(DrafterType drafter, Answer& answer, const Speculation& speculation)
      : drafter_(std::move(drafter)),
        answer_(answer),
        on_fault_(speculation.on_draft_fault),
        overlaps_(in_batches && speculation.overlap) {}

  const DrafterType& drafter() const { return drafter_; }
  /// Whether the request still drafts.
  bool on() const { return on_; }
  /// The draft of the current round.
  std::span<const Token> tokens() const { return drafted_; }  // [m]
  /// The distribution that tokens()[i] was drawn from; valid if the rule needs distributions.
  const Distribution& distribution(int i) const { return q_[static_cast<std::size_t>(i)]; }

  /// Starts the answer's request. most: maximum draft length per round.
  void start(int most) {
    on_ = most > 0;
    over_ = true;
    pushed_ = 0;
    is_ahead_ = has_ahead_ = false;
    make_room(drafted_, q_, most);
    if (overlaps_) make_room(other_, other_q_, most);
    if constexpr (in_batches) answer_.stats.draft_bytes_per_step = drafter_.info().step_bytes;
    if (!on_) return;
    guard([&] {
      adapt(answer_.request.draft_adapter);
      drafter_.start(answer_.request.prompt);
    });
  }

  /// Sets the draft model's adapter. Throws adapter.other-model.
  void adapt(const AdapterRef& adapter) {
    if constexpr (in_batches) drafter_.adapt(adapter);
  }

  /// Number of tokens to read before drafting.
  std::size_t left_to_read() const {
    if constexpr (in_batches) {
      const std::size_t size = answer_.history().size(), read = static_cast<std::size_t>(drafter_.length()) + 1;
      if (on_ && size <= static_cast<std::size_t>(drafter_.info().context) && read < size) return size - read;
    }
    return 0;
  }

  /// Number of tokens that the draft's context leaves after n tokens.
  int room(int n) const {
    if constexpr (in_batches) return drafter_.info().context - n;
    return most_draft_tokens;
  }
  /// Whether the drafter can propose after n tokens without a backlog to read.
  bool in_step(int n) const {
    if constexpr (in_batches) return n - drafter_.length() <= 2;
    return true;
  }

  static constexpr bool weighs = WeighingDrafter<DrafterType>;
  void set_row_cost(std::optional<float> cost) requires weighs { drafter_.set_row_cost(cost); }

  /// Whether the current round only reads.
  bool reads() const { return reading_ > 0; }

  /// Begins a round that only reads, at most `most` tokens.
  void begin_reading(std::size_t most) {
    begin(0, std::nullopt, nullptr);
    reading_ = left_to_read() > 0 ? most : 0;
    over_ = reading_ == 0;
  }

  /// Begins a round with a draft of at most `most` tokens. A model chooses them by `draw` if it can. `policy` is
  /// consulted after each token if it wants confidences. Drafters without a model have finished when this returns.
  void begin(int most, std::optional<Draw> draw, draft_length::Policy* policy) {
    reading_ = 0;
    most_ = most;
    draw_ = draw;
    policy_ = policy;
    coin_ = coin_here();
    was_ahead_ = std::exchange(has_ahead_, false);
    if (was_ahead_) {
      swap_drafts();
      drafted_.resize(std::min(drafted_.size(), static_cast<std::size_t>(std::max(most, 0))));
      push_drafted();
    } else {
      drafted_.clear();
      stopped_ = false;
    }
    over_ = stopped_ || static_cast<int>(drafted_.size()) >= most;
    if constexpr (!in_batches) {
      if (!over_) propose();
      over_ = true;
    }
  }

  /// Whether part of this round's draft was made ahead, during the previous round.
  bool was_ahead() const { return was_ahead_; }

  /// Drafts ahead after the complete draft of this round: a guess at the bonus token, then at most `most` tokens of the
  /// next round. Until finish(), the current draft is the one made ahead.
  void begin_ahead(int most) {
    guess_ = no_token;
    if (!overlaps_ || !on_ || reading_ > 0 || most <= 0 || drafted_.empty() || answer_.ends.any(drafted_.back()))
      return;
    push_drafted();
    swap_drafts();
    drafted_.clear();
    is_ahead_ = true;
    over_ = stopped_ = false;
    most_ = most;
  }

  /// Ends the round with bonus token `token` after full acceptance. Returns true if it equals the guess; the tokens
  /// drafted ahead then begin the next draft. Otherwise the caller must call rewind().
  bool keep_ahead(Token token) {
    has_ahead_ = on_ && guess_ != no_token && std::exchange(guess_, no_token) == token;
    answer_.stats.drafts_ahead_held += has_ahead_;
    return has_ahead_;
  }

  /// Steps that the model can run consecutively; 0: the draft is complete.
  int steps() const {
    if (over_) return 0;
    return chooses() ? most_ - static_cast<int>(drafted_.size()) + guesses() : 1;
  }

  /// Adds rows for `steps` steps to a batch of the model; adds nothing if steps() is 0.
  void plan(Batch& batch, int steps) requires in_batches {
    item_ = nothing;
    if (over_) return;
    const auto read = static_cast<std::size_t>(drafter_.length());
    if (reading_ > 0) {
      item_ = drafter_.plan(batch, next_to_read(answer_.history(), read, reading_), {});
    } else {
      item_ = drafter_.plan(
          batch, answer_.history().subspan(read),
          chooses() ? Ask{.want = Want::choice, .draw = *draw_, .steps = steps} : Ask{.want = Want::logits});
    }
  }

  void take(const Batch& batch) requires in_batches {
    if (item_ == nothing) return;
    if (reading_ > 0) {
      over_ = true;
    } else if (chooses()) {
      const std::span<const Token> chosen = batch.choices(item_);
      drafter_.take(chosen);
      for (std::size_t i = 0; i < chosen.size() && !over_; ++i) {
        if (chosen[i] != no_token) ++answer_.stats.draft_forwards;
        guesses() ? guess(chosen[i]) : append(chosen[i]);
      }
    } else {
      choose({batch.logits(item_).row(0), static_cast<std::size_t>(drafter_.info().vocab)});
    }
  }

  /// Handles the current exception of the model's forward.
  void failed() {
    if (item_ == nothing) return;
    over_ = true;
    if (!is_ahead_) return guard([] { throw; });
    give_up_ahead();
    try {
      throw;
    } catch (const Error& error) {
      if (error.id().starts_with("ranks.")) throw;  // ranks cannot repeat the step
    } catch (...) {
    }
  }

  /// Ends the drafting of the round, or the drafting ahead. Removes drafted tokens from the processor.
  void finish() {
    for (; pushed_ > 0; --pushed_) answer_.processor.pop();
    if (!std::exchange(is_ahead_, false)) return;
    swap_drafts();
    over_ = true;
  }

  /// Releases all memory.
  void forget() {
    has_ahead_ = false;
    drafter_.rewind(0);
  }

  /// Discards state beyond the first `length` tokens.
  void rewind(int length) {
    has_ahead_ = false;
    guess_ = no_token;
    if (on_) guard([&] { drafter_.rewind(length); });
  }

 private:
  static constexpr int nothing = -1;

  const Sampling& sampling() const { return answer_.sampling(); }

  bool chooses() const {
    if constexpr (in_batches) return draw_ && drafter_.info().chooses && !asks_policy();
    return false;
  }
  /// Whether the next token is the guess at the bonus token.
  bool guesses() const { return is_ahead_ && guess_ == no_token; }
  bool asks_policy() const { return policy_ != nullptr && policy_->wants_confidence(); }

  PhiloxCoin coin_here() const { return {sampling().seed, static_cast<std::uint64_t>(answer_.history().size())}; }

  void make_room(std::vector<Token>& tokens, std::vector<Distribution>& q, int most) {
    tokens.clear();
    tokens.reserve(static_cast<std::size_t>(most) + 1);
    q.resize(Rule::needs_distribution ? static_cast<std::size_t>(most) + 1 : 1);
    if (sampling().greedy()) return;
    for (Distribution& row : q) row.reserve(answer_.processor.support(answer_.vocab()));
  }

  void swap_drafts() {
    std::swap(drafted_, other_);
    std::swap(q_, other_q_);
  }
  void push_drafted() {
    for (const Token token : drafted_) answer_.processor.push(token);
    pushed_ += static_cast<int>(drafted_.size());
  }

  /// If the drafter fails, tokens proposed before remain valid.
  void propose() requires(!in_batches) {
    if constexpr (DistributionDrafter<DrafterType>) {
      auto choose_next = [&](std::span<const float> row) -> std::optional<Token> {
        if (over_) {
          fault("the draft proposed more rows than requested");
          return std::nullopt;
        }
        choose(row);
        return over_ ? std::nullopt : std::optional(drafted_.back());
      };
      guard([&] { drafter_.propose(answer_.history(), ChooseNext{choose_next}); });
    } else {
      guard([&] { drafter_.propose(answer_.history(), most_, drafted_); });
      const std::string wrong = cut_draft(drafted_, most_, answer_.target.vocab, answer_.ends);
      if (!wrong.empty()) fault(wrong);
    }
  }

  /// Chooses the next token from its row of logits.
  void choose(std::span<const float> row) {
    ++answer_.stats.draft_forwards;
    // Truncates to the common ids. Ids that only the target has are never drafted: q is 0 there.
    row = row.first(std::min(row.size(), answer_.vocab()));
    const int i = static_cast<int>(drafted_.size());
    Distribution& q = q_[Rule::needs_distribution ? drafted_.size() : 0];
    Token token = no_token;
    if (sampling().greedy()) {
      token = answer_.processor.greedy(row);
    } else if (answer_.processor.distribution(row, q)) {
      token = guesses() ? bonus(q) : Rule::draft(coin_, i, q);
    }
    if (guesses()) return guess(token);
    if (token != no_token && asks_policy()) {
      over_ = stopped_ = !policy_->go_on(confidence_in(token, row, q));
      if (over_ && policy_->drops()) return;
    }
    append(token);
  }

  /// The draft's own draw of the bonus token.
  Token bonus(const Distribution& q) const {
    const int drafted = static_cast<int>(other_.size());
    if constexpr (Rule::needs_distribution) return coin_.bonus(drafted, q);
    return Rule::draft(coin_, drafted, q);
  }

  void guess(Token token) {
    if (token == no_token || answer_.ends.any(token)) return give_up_ahead();
    guess_ = token;
    ++answer_.stats.drafts_ahead;
    answer_.processor.push(token);
    ++pushed_;
    coin_ = coin_here();
  }

  /// A persistent failure recurs in the next round's draft and is handled there.
  void give_up_ahead() {
    over_ = true;
    guess_ = no_token;
  }

  double confidence_in(Token token, std::span<const float> row, const Distribution& q) {
    if (!sampling().greedy()) return q.of(token);
    report_.by_row(answer_.processor.edited(row), token, 0);
    return std::exp(report_.logprob());
  }

  void append(Token token) {
    if (token == no_token) {
      over_ = true;
      if (is_ahead_) return give_up_ahead();
      return fault(
          text("expected finite logits of the draft, found NaN or infinity at token ", answer_.history().size()));
    }
    drafted_.push_back(token);
    answer_.processor.push(token);
    ++pushed_;
    stopped_ = stopped_ || answer_.ends.any(token);
    over_ = over_ || stopped_ || static_cast<int>(drafted_.size()) >= most_;
  }

  /// Runs a step of the drafter. If it throws, the request continues without a draft. Errors of memory and device are
  /// rethrown, since the target would fail too.
  template <class Step>
  void guard(Step&& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const Error& error) {
      const std::string room = error.id().substr(0, error.id().find('.'));
      if (room == "cache" || room == "backend" || room == "gpu" || room == "ranks") throw;
      fault(text("the draft failed: ", error.what()));
    } catch (const std::exception& error) {
      fault(text("the draft failed: ", error.what()));
    } catch (...) {
      fault("the draft failed with an unknown exception");
    }
  }

  void fault(const std::string& reason) {
    ++answer_.stats.draft_faults;
    on_ = false;
    if (!answer_.stats.disabled_reason.empty()) return;
    answer_.stats.disabled_reason = reason;
    if (on_fault_) on_fault_(reason);
  }

  DrafterType drafter_;
  Answer& answer_;
  std::function<void(std::string_view)> on_fault_;
  bool overlaps_;
  bool on_ = false;
  std::size_t reading_ = 0;  // tokens to read in this round; 0: it drafts
  bool over_ = true;         // this round's drafting has ended
  bool stopped_ = false;     // ended because of a drafted token
  int most_ = 0;
  std::optional<Draw> draw_;
  draft_length::Policy* policy_ = nullptr;
  PhiloxCoin coin_{};
  int item_ = nothing;           // index in the model's batch
  int pushed_ = 0;               // drafted tokens in the processor
  std::vector<Token> drafted_;   // [m]
  std::vector<Distribution> q_;  // [m], or one scratch entry if the rule needs none
  LogprobReport report_;

  // While drafting ahead, other_ holds the draft that the target verifies; afterwards it holds the next round's draft.
  bool is_ahead_ = false;
  bool has_ahead_ = false;  // other_ holds the beginning of the next round's draft
  bool was_ahead_ = false;  // same, for the current round
  Token guess_ = no_token;  // guess at the bonus token
  std::vector<Token> other_;
  std::vector<Distribution> other_q_;
};

}}}
