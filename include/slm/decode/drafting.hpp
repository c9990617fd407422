// Drafting: the draft's part of a request's rounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/acceptance.hpp"
#include "slm/decode/active_request.hpp"
#include "slm/decode/draft.hpp"
#include "slm/decode/draft_control.hpp"
#include "slm/decode/draft_faults.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/decode/model_drafter.hpp"
#include "slm/decode/random.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/token_sources.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The sources of drafts of one request.
/// Public members: one for each step of a round, see Generation.
template <VerificationRule Rule>
class Drafting {
 public:
  /// The active request must outlive this. most: maximum draft length per round.
  Drafting(const Drafter& drafter, ActiveRequest& active, const Speculation& speculation, int most)
      : active_(active),
        faults_(active, speculation.on_draft_fault),
        overlaps_(drafter.model() != nullptr && speculation.overlap),
        recorded_(most) {
    if (drafter.model() != nullptr) model_.emplace(*drafter.model(), drafter.token_map());
    for (const auto& source : drafter.sources()) {
      std::unique_ptr<Source> own = source->copy();
      if (!Rule::may_drop) own->isolate();
      if (own->kind == Source::Kind::distributions) {
        distributions_ = std::move(own);
      } else {
        sources_.add(std::move(own), most);
      }
    }
  }

  /// The draft model, or null.
  const ModelDrafter* model() const { return model_ ? &*model_ : nullptr; }
  /// Whether the request still drafts.
  bool on() const { return faults_.on(); }
  /// The draft of the current round.
  std::span<const Token> tokens() const { return draft_.tokens; }  // [m]
  /// The distribution that tokens()[i] was drawn from; valid if the rule needs distributions.
  const Distribution& distribution(int i) const { return draft_.q[static_cast<std::size_t>(i)]; }

  /// Starts the active request. most: maximum draft length per round.
  void start(int most) {
    faults_.start(most > 0 && (model_ || distributions_ || !sources_.empty()));
    over_ = true;
    pushed_ = 0;
    is_ahead_ = has_ahead_ = false;
    const std::size_t support = sampling().greedy() ? 0 : active_.processor.support(active_.vocab());
    draft_.reserve(static_cast<std::size_t>(most), Rule::needs_distribution, support);
    if (overlaps_) other_.reserve(static_cast<std::size_t>(most), Rule::needs_distribution, support);
    recorded_.begin();
    recorded_survival_.reserve(static_cast<std::size_t>(most));
    if (model_) model_->describe(active_.stats);
    if (!on()) return;
    faults_.guard([&] {
      adapt(active_.request.draft_adapter);
      if (model_) model_->start(active_.request.prompt);
      if (distributions_) distributions_->start(active_.request);
      sources_.start(active_.request, most);
    });
  }

  /// The request has ended with an answer.
  void end() {
    if (on()) faults_.guard([&] { sources_.finish(active_.history(), active_.request.prompt.size()); });
  }

  /// Sets the draft model's adapter. Throws adapter.other-model.
  void adapt(const AdapterRef& adapter) {
    if (model_) model_->adapt(adapter);
  }

  /// Number of tokens to read before drafting.
  std::size_t left_to_read() const {
    if (!model_) return 0;
    const std::size_t size = active_.history().size(), read = static_cast<std::size_t>(model_->length()) + 1;
    return on() && read < size && positions_left(static_cast<int>(size)) >= 0 ? size - read : 0;
  }

  /// Number of tokens that the draft model's context leaves after n tokens: the history and drafted ones.
  int positions_left(int n) const { return model_ ? model_->positions_left(active_.history(), n) : most_draft_tokens; }
  /// Whether the model can propose after n tokens without a backlog to read.
  bool in_step(int n) const { return !model_ || n - model_->length() <= 2; }

  /// Acceptance of the source with distributions, the draft model or a user's.
  draft_length::AcceptanceRecord& record() { return recorded_; }

  /// Collects what the sources offer: at most `most` tokens, and `by_model` tokens by the model.
  draft_length::Decision offer(draft_length::Attempts& attempts, int most, int by_model) {
    recorded_survival_.clear();
    sources_.ask(active_, std::max(most, 0), faults_);
    if (on() && by_model > 0 && (model_ || distributions_)) recorded_.append_survival(recorded_survival_, by_model);
    return {.attempts = &attempts,
            .tokens = sources_.survival(),
            .estimated = sources_.estimated(),
            .model = recorded_survival_};
  }

  /// After the round's verdict, unless it was cut short.
  void observe(const draft_length::RoundOutcome& round, bool doubts) {
    draft_length::AcceptanceRecord& record = by_tokens_ ? sources_.record() : recorded_;
    if (doubts) record.doubt();
    record.observe(round);
  }
  /// Whether the model, or the source with distributions, has drafted in this round.
  bool by_model() const { return !by_tokens_ && !draft_.tokens.empty(); }
  bool forces() const { return by_tokens_ && sources_.forces(); }
  bool is_ahead() const { return is_ahead_; }

  /// Whether the current round only reads.
  bool reads() const { return reading_ > 0; }
  /// Number of tokens that it has read.
  int read_now() const { return read_now_; }

  /// Begins a round in which the draft model reads at most `most` tokens.
  void begin_reading(std::size_t most) {
    begin(0, std::nullopt, nullptr);
    reading_ = left_to_read() > 0 ? most : 0;
    read_now_ = 0;
    over_ = reading_ == 0;
  }

  /// Begins a round with the first `length` tokens of the best offer that is not the model's.
  void begin_tokens(int length) {
    if (has_ahead_) rewind(static_cast<int>(active_.history().size()) - 1);
    reading_ = 0;
    by_tokens_ = true;
    was_ahead_ = false;
    over_ = stopped_ = true;
    draft_.assign(sources_.proposed().first(static_cast<std::size_t>(length)), Rule::needs_distribution);
  }

  /// Begins a round with a draft of at most `most` tokens. A model chooses them by `draw` if it can. `policy` is
  /// consulted after each token if it wants confidences. Without a model the draft is complete when this returns.
  void begin(int most, std::optional<Draw> draw, draft_length::Policy* policy) {
    reading_ = 0;
    by_tokens_ = false;
    most_ = most;
    draw_ = draw;
    policy_ = policy;
    random_ = random_here();
    was_ahead_ = std::exchange(has_ahead_, false);
    if (was_ahead_) {
      std::swap(draft_, other_);
      draft_.tokens.resize(std::min(draft_.tokens.size(), static_cast<std::size_t>(std::max(most, 0))));
      push_drafted();
    } else {
      if (model_) model_->begin_draft();
      draft_.tokens.clear();
      stopped_ = false;
    }
    over_ = stopped_ || static_cast<int>(draft_.tokens.size()) >= most;
    if (model_) return;
    if (!over_) propose();
    over_ = true;
  }

  /// Whether part of this round's draft was made ahead, during the previous round.
  bool was_ahead() const { return was_ahead_; }

  /// Drafts ahead after the complete draft of this round: a guess at the bonus token, then at most `most` tokens of the
  /// next round. Until finish(), the current draft is the one made ahead.
  void begin_ahead(int most) {
    guess_ = no_token;
    if (!overlaps_ || !on() || reading_ > 0 || most <= 0 || !by_model() || stopped_) return;
    push_drafted();
    std::swap(draft_, other_);
    draft_.tokens.clear();
    is_ahead_ = true;
    over_ = stopped_ = false;
    most_ = most;
  }

  /// Ends the round with bonus token `token` after full acceptance. Returns true if it equals the guess; the tokens
  /// drafted ahead then begin the next draft. Otherwise the caller must call rewind().
  bool keep_ahead(Token token) {
    has_ahead_ = on() && guess_ != no_token && std::exchange(guess_, no_token) == token;
    active_.stats.drafts_ahead_held += has_ahead_;
    return has_ahead_;
  }

  /// Steps that the model can run consecutively; 0: the draft is complete.
  int steps() const {
    if (over_) return 0;
    return chooses() && !constrained() ? most_ - static_cast<int>(draft_.tokens.size()) + guesses() : 1;
  }

  /// Adds rows for `steps` steps to a batch of the model; adds nothing if steps() is 0.
  void plan(Batch& batch, int steps) {
    item_ = nothing;
    if (over_) return;
    const auto read = static_cast<std::size_t>(model_->length());
    if (reading_ > 0) {
      const std::span<const Token> tokens = next_to_read(active_.history(), read, reading_);
      read_now_ = static_cast<int>(tokens.size());
      item_ = model_->plan(batch, tokens, {});
    } else {
      ResultSpec spec{.result = RowResult::logits};
      if (chooses()) spec = {.result = RowResult::choice, .draw = *draw_, .chain = steps};
      if (chooses() && constrained()) mask_ = active_.processor.constraint().mask(), spec.masks = {&mask_, 1};
      item_ = model_->plan(batch, active_.history().subspan(read), spec);
    }
  }

  void take(const Batch& batch) {
    if (item_ == nothing) return;
    if (reading_ > 0) {
      over_ = true;
    } else if (chooses()) {
      const std::span<const Token> chosen = batch.choices(item_);
      model_->take(chosen);
      for (std::size_t i = 0; i < chosen.size() && !over_; ++i) {
        if (chosen[i] != no_token) ++active_.stats.draft_forwards;
        guesses() ? guess(chosen[i]) : append(chosen[i]);
      }
    } else {
      choose(model_->row_of(batch.logits(item_).row(0)));
    }
  }

  /// Handles the current exception of the model's forward.
  void failed() {
    if (item_ == nothing) return;
    over_ = true;
    if (!is_ahead_) return faults_.guard([] { throw; });
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
    for (; pushed_ > 0; --pushed_) active_.processor.pop();
    if (!std::exchange(is_ahead_, false)) return;
    std::swap(draft_, other_);
    over_ = true;
  }

  /// Releases all memory.
  void forget() {
    has_ahead_ = false;
    if (model_) model_->forget();
  }

  /// Discards state beyond the first `length` tokens.
  void rewind(int length) {
    has_ahead_ = false;
    guess_ = no_token;
    if (!on()) return;
    faults_.guard([&] {
      if (model_) model_->rewind(length);
      if (distributions_) distributions_->rewind(length);
      sources_.rewind(length);
    });
  }

 private:
  static constexpr int nothing = -1;
  const Sampling& sampling() const { return active_.sampling(); }
  bool constrained() const { return active_.request.constraint != nullptr; }
  std::size_t common_ids() const { return std::min(static_cast<std::size_t>(model_->info().vocab), active_.vocab()); }
  bool chooses() const { return model_ && draw_ && model_->chooses() && !asks_policy(); }
  /// Whether the next token is the guess at the bonus token.
  bool guesses() const { return is_ahead_ && guess_ == no_token; }
  bool asks_policy() const { return policy_ != nullptr && policy_->wants_confidence(); }

  PhiloxRandom random_here() const { return {sampling().seed, static_cast<std::uint64_t>(active_.history().size())}; }

  void push_drafted() {
    for (const Token token : draft_.tokens) active_.processor.push(token);
    pushed_ += static_cast<int>(draft_.tokens.size());
  }

  /// Drafts by the source with distributions.
  void propose() {
    if (!distributions_) return;
    auto choose_next = [&](std::span<const float> row) -> std::optional<Token> {
      if (over_) return faults_.report("the draft proposed more rows than requested"), std::nullopt;
      choose(row);
      return over_ ? std::nullopt : std::optional(draft_.tokens.back());
    };
    faults_.guard([&] { distributions_->propose(active_.history(), ChooseNext{choose_next}); });
  }

  /// Chooses the next token from its row of logits.
  void choose(std::span<const float> row) {
    ++active_.stats.draft_forwards;
    // Truncates to the common ids. Ids that only the target has are never drafted: q is 0 there.
    row = row.first(std::min(row.size(), active_.vocab()));
    const int i = static_cast<int>(draft_.tokens.size());
    Distribution& q = draft_.q[Rule::needs_distribution ? draft_.tokens.size() : 0];
    Token token = no_token;
    if (sampling().greedy()) {
      token = active_.processor.greedy(row);
    } else if (active_.processor.distribution(row, q)) {
      token = guesses() ? bonus(q) : Rule::draft(random_, i, q);
    }
    if (guesses()) return guess(token);
    if (token == no_token && find_peak(row).token != no_token) return void(over_ = stopped_ = true);  // all forbidden
    if (token != no_token && asks_policy()) {
      if (sampling().greedy()) report_.by_row(active_.processor.edited(row), token, 0);
      over_ = stopped_ = !policy_->go_on(sampling().greedy() ? std::exp(report_.logprob()) : q.of(token));
      if (over_ && policy_->drops()) return;
    }
    append(token);
  }

  /// The draft's own draw of the bonus token.
  Token bonus(const Distribution& q) const {
    const int drafted = static_cast<int>(other_.tokens.size());
    if constexpr (Rule::needs_distribution) return random_.bonus(drafted, q);
    return Rule::draft(random_, drafted, q);
  }

  void guess(Token token) {
    if (token == no_token || active_.ends.any(token)) return give_up_ahead();
    guess_ = token;
    ++active_.stats.drafts_ahead;
    active_.processor.push(token);
    ++pushed_;
    random_ = random_here();
  }

  /// A persistent failure recurs in the next round's draft and is handled there.
  void give_up_ahead() {
    over_ = true;
    guess_ = no_token;
  }

  void append(Token token) {
    if (token == no_token) {
      over_ = true;
      if (chooses() && active_.processor.forbids_all(common_ids())) return void(stopped_ = true);
      if (is_ahead_) return give_up_ahead();
      return faults_.report(
          text("expected finite logits of the draft, found NaN or infinity at token ", active_.history().size()));
    }
    draft_.tokens.push_back(token);
    active_.processor.push(token);
    ++pushed_;
    stopped_ = stopped_ || active_.ends.any(token) || active_.processor.is_complete();
    over_ = over_ || stopped_ || static_cast<int>(draft_.tokens.size()) >= most_;
  }

  ActiveRequest& active_;
  DraftFaults faults_;
  bool overlaps_;
  std::optional<ModelDrafter> model_;
  std::unique_ptr<Source> distributions_;  // a source instead of the model
  draft_length::AcceptanceRecord recorded_;
  std::vector<float> recorded_survival_;
  TokenSources sources_;
  bool by_tokens_ = false;   // the round's draft is a proposal of sources_
  std::size_t reading_ = 0;  // tokens to read in this round; 0: it drafts
  int read_now_ = 0;         // tokens read in this round
  bool over_ = true;         // this round's drafting has ended
  bool stopped_ = false;     // ended because of a drafted token
  int most_ = 0;
  std::optional<Draw> draw_;
  TokenMask mask_;  // of the row that the model reads, if it chooses
  draft_length::Policy* policy_ = nullptr;
  PhiloxRandom random_{};
  int item_ = nothing;  // index in the model's batch
  int pushed_ = 0;      // drafted tokens in the processor
  Draft draft_;
  LogprobReport report_;

  // While drafting ahead, other_ holds the draft that the target verifies; afterwards it holds the next round's draft.
  bool is_ahead_ = false;
  bool has_ahead_ = false;  // other_ holds the beginning of the next round's draft
  bool was_ahead_ = false;  // same, for the current round
  Token guess_ = no_token;  // guess at the bonus token
  Draft other_;
};

}}}
