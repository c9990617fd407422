// Generation: one request during decoding. It plans rounds and takes results; the owner of the models runs their
// forwards for many generations at once (rounds.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "slm/core/types.hpp"
#include "slm/decode/active_request.hpp"
#include "slm/decode/draft_control.hpp"
#include "slm/decode/drafting.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/sink.hpp"
#include "slm/decode/stats.hpp"
#include "slm/decode/verification.hpp"

namespace slm { inline namespace v0_1 {

/// Between rounds, with n tokens committed: the target has read n - 1 of them, all but the last one (the anchor). The
/// draft has read at most as many. Penalties and draws depend on exactly those n tokens.
///
/// A round: prepare(); decide(); begin_round(); while draft_steps() is not 0, plan_draft() and take_draft() around a
/// forward of the draft model; plan() and take() around a forward of the target; next() until it returns null. Not
/// thread-safe. Public members: one for each step of a round, called by the drivers of decoders and engines.
template <VerificationRule Rule>
class Generation {
 public:
  /// sequence: an empty sequence of the target, in the pool for its keys and values.
  Generation(const Drafter& drafter, Sequence sequence, const ModelInfo& target, const Speculation& speculation,
             Rule rule)
      : active_{.target = target},
        policy_(policy_of(speculation, Rule::may_drop)),
        drafting_(drafter, active_, speculation, policy_.most()),
        verification_(std::move(sequence), active_, std::move(rule)),
        plain_step_every_(speculation.plain_step_every),
        clock_(speculation.clock ? speculation.clock : steady_seconds) {}
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Starts a request. Reuses what the caches hold from the previous request. Throws Error if the request is invalid.
  void start(Request request) {
    check_request(request, active_.target);
    began_ = clock_();
    const int most = policy_.most();
    active_.start(std::move(request), 2 * static_cast<std::size_t>(most) + 2);
    policy_.restart();
    attempts_ = {};
    is_new_ = true, reads_ = false;
    verification_.start(most);
    Stats& stats = active_.stats;
    stats = {};
    stats.start(most);
    stats.rule = Rule::name;
    stats.prompt_tokens = std::ssize(active_.request.prompt);
    stats.reused_tokens = static_cast<std::int64_t>(verification_.length());
    adopted_ = sequence().adopted(), preempted_ = false;
    stats.target_bytes_per_step = active_.target.step_bytes;
    phase_ = Phase::over;
    const auto none = reason_for_no_token();
    if (none && !asks_of_prompt()) return end(*none);
    stats.prefill_draft_seconds = -clock_();
    drafting_.start(none ? 0 : most);
    stats.prefill_draft_seconds += clock_();
    phase_ = Phase::reading;
  }

  /// Whether more rounds follow.
  bool going() const { return phase_ != Phase::over; }
  /// Ends the request immediately.
  void abandon() { phase_ = Phase::over; }

  // The following functions are for schedulers, between rounds.

  /// Reuses prefix pages that other sequences have computed.
  void adopt() {
    if (phase_ != Phase::reading) return;
    verification_.adopt();
    count_adopted();
  }
  void report_progress() const {
    const std::size_t of = active_.request.prompt.size() - 1;
    if (active_.request.progress) active_.request.progress(std::min(verification_.length(), of), of);
  }
  /// Tokens that the target must read before the next token can be generated.
  std::size_t left_to_read() const { return phase_ == Phase::reading ? verification_.left_to_read() : 0; }
  /// Whether prompt rows need results. If so, a step should read at most most_scored_rows() of them.
  bool asks_of_prompt() const { return verification_.asks_of_prompt(); }
  /// Tokens that the draft reads next to plain steps before it drafts again.
  std::size_t left_to_catch_up() const {
    return phase_ == Phase::deciding && catches_up_ ? drafting_.left_to_read() : 0;
  }
  /// Sets how many of them each round reads.
  void set_chunk(std::size_t tokens) { chunk_ = tokens; }
  /// Preempts the request: releases its KV cache memory. The next rounds recompute it, with unchanged output. May be
  /// called after a round that threw before take().
  void preempt() {
    verification_.forget();
    drafting_.finish();
    drafting_.forget();
    preempted_ = going();
    if (preempted_) phase_ = Phase::reading;
  }
  /// abandon() and preempt(); also releases the request's adapters and callbacks.
  void let_go() {
    abandon();
    preempt();
    active_.request = {};
    verification_.adapt(nullptr);
    drafting_.adapt(nullptr);
  }
  /// Reverts a round that threw before take().
  void undo_round() {
    drafting_.finish();
    drafting_.rewind(static_cast<int>(history().size()) - 1);
  }
  /// Ends the request with this reason.
  void end_with(FinishReason reason) {
    if (!going()) return;
    end(reason);
    phase_ = Phase::over;
  }
  const Stats& stats() const { return active_.stats; }
  /// The draft model, or null, and the number of tokens that it has read.
  const AnyModel* draft_model() const { return drafting_.model() != nullptr ? &drafting_.model()->model() : nullptr; }
  int draft_read() const { return drafting_.model() != nullptr ? drafting_.model()->length() : 0; }
  /// The sequence that the target has read: prompt and output without the last token.
  const Sequence& sequence() const { return verification_.sequence(); }
  /// Prompt and output.
  std::span<const Token> history() const { return active_.history(); }

  /// Adds this generation's work in the next round to `load`, without drafting.
  void add_to(draft_length::Load& load) const {
    if (!going()) return;
    const std::size_t to_read = left_to_read();
    load.texts += to_read == 0;
    load.rows += to_read == 0 ? 1 : static_cast<int>(std::min(to_read, chunk_));
  }

  /// Prepares a round: checks for cancellation, and collects offers of drafts. `control` must live until the last
  /// next() of the round. Returns whether decision() needs control.choose().
  bool prepare(draft_length::DraftControl& control) {
    control_ = &control;
    decision_ = {.attempts = &attempts_, .tokens = {}, .model = {}};
    if (!going()) return false;
    if (active_.request.cancel.stop_requested()) return end_with(FinishReason::cancelled), false;
    round_began_ = clock_();
    if (std::exchange(is_new_, false) && policy_.adaptive()) {
      control.begin_text();
      drafting_.record().begin(control.others());
    }
    if (phase_ == Phase::reading) {
      if (left_to_read() > 0) return false;
      phase_ = Phase::deciding;
    }
    const int n = static_cast<int>(history().size());
    behind_ = drafting_.left_to_read() > in_reach;
    const bool plain = plain_step_every_ > 0 && (active_.stats.rounds + 1) % plain_step_every_ == 0;
    wanted_ = drafting_.on() && !plain ? policy_.next() : 0;
    most_ = std::min(wanted_, draft_limit(n, active_.stats.emitted));
    in_step_ = drafting_.in_step(n);
    decision_ = drafting_.offer(attempts_, most_, behind_ ? 0 : std::min(most_, drafting_.positions_left(n)));
    if (policy_.adaptive()) return true;
    detail::decide_alone(decision_, most_);
    return false;
  }
  draft_length::Decision& decision() { return decision_; }

  /// Begins the round. Drafts if the source needs no model.
  void begin_round() {
    if (!going()) return;
    if (phase_ == Phase::reading) return drafting_.begin_reading(reads_on() ? chunk_ : 0);
    Stats& stats = active_.stats;
    const int asked = policy_.adaptive() ? decision_.length : wanted_;
    if (stats.rounds > 0 && asked != stats.draft_length) ++stats.draft_length_changes;
    stats.draft_length = asked;
    if (decision_.length > 0 && !decision_.by_model) {
      catches_up_ = false;
      return drafting_.begin_tokens(decision_.length);
    }
    const bool has_chunk = std::exchange(catches_up_, behind_ && reads_on());
    if (behind_) return drafting_.begin_reading(has_chunk && catches_up_ ? chunk_ : 0);
    reads_ = false;
    drafting_.begin(decision_.length, verification_.draw_for_models(), &policy_);
  }

  /// Steps that the draft model can run consecutively for this generation; 0: the draft is complete.
  int draft_steps() const { return going() ? drafting_.steps() : 0; }
  /// Adds rows for `steps` steps to a batch of the draft model; adds nothing if draft_steps() is 0.
  void plan_draft(Batch& batch, int steps) {
    if (going()) drafting_.plan(batch, steps);
  }
  void take_draft(const Batch& batch) {
    if (going()) drafting_.take(batch);
  }
  /// Handles the current exception of the draft model's forward: the request continues without a draft. Rethrows errors
  /// of memory and device.
  void draft_failed() {
    if (going()) drafting_.failed();
  }

  /// Between plan() and end_ahead(): drafts for the next round, assuming that the target accepts everything.
  void begin_ahead() {
    if (!going() || phase_ != Phase::deciding) return drafting_.begin_ahead(0);
    const int emits = drafted() + 1, n = static_cast<int>(history().size()) + emits;
    drafting_.begin_ahead(
        std::min({decision_.length, draft_limit(n, active_.stats.emitted + emits), drafting_.positions_left(n)}));
  }
  void end_ahead() { drafting_.finish(); }

  /// Whether (part of) this round's draft existed when the round began.
  bool had_draft() const { return drafted() > 0 && drafting_.was_ahead(); }
  /// Number of tokens drafted for this round.
  int drafted() const { return going() && phase_ == Phase::deciding ? static_cast<int>(drafting_.tokens().size()) : 0; }
  int drafted_by_model() const { return drafting_.by_model() ? drafted() : 0; }
  /// Number of tokens that the round emits.
  int emits() const { return going() && phase_ == Phase::deciding ? verdict_.accepted + 1 : 0; }
  /// Whether the model only read in this round, and how many tokens.
  bool only_read() const { return going() && drafting_.reads(); }
  int draft_rows() const { return drafting_.read_now(); }
  /// Whether the model had a backlog to read before it could propose.
  bool had_backlog() const { return only_read() || (drafted_by_model() > 0 && !in_step_); }

  /// Adds rows to a batch of the target: part of the prompt, or the anchor and the draft.
  void plan(Batch& batch) {
    if (!going()) return;
    drafting_.finish();
    planned_ = clock_();
    if (phase_ == Phase::deciding) {
      verification_.plan(batch, drafting_.tokens());
    } else {
      verification_.read(batch, chunk_);
    }
  }

  /// Computes the masks of the round's rows. May run beside the target's forward, on another thread. Throws nothing.
  void prepare_masks() {
    if (has_masks()) verification_.prepare_masks(drafting_.is_ahead());
  }
  bool has_masks() const { return going() && phase_ == Phase::deciding && active_.request.constraint != nullptr; }
  /// Takes the target's results. verified: time of the results, in seconds of the clock. next() then returns the tokens
  /// while the batch is unchanged. Throws decode.non-finite-logits.
  void take(const Batch& batch, double verified) {
    if (!going()) return;
    Stats& stats = active_.stats;
    if (phase_ == Phase::reading) {
      stats.prefill_draft_seconds += planned_ - round_began_;
      stats.prefill_target_seconds += verified - planned_;
      count_adopted();
      verification_.take_read(batch);
      report_progress();
      if (const auto none = reason_for_no_token(); none && left_to_read() == 0) end_with(*none);
      return;
    }
    verdict_ = verification_.take(batch, [&](int i) -> const Distribution& { return drafting_.distribution(i); });
    decided_ = clock_();
    const std::size_t drafted = drafting_.tokens().size();
    stats.count_round(drafted, verdict_.evaluated, verdict_.accepted);
    if (drafting_.by_model()) stats.drafted_by_model += static_cast<std::int64_t>(drafted);
    stats.add_seconds(drafted, planned_ - round_began_, verified - planned_, decided_ - verified);
    emitted_ = 0, ended_ = false;
  }

  /// Commits the round's next token and returns it, valid until the next call. Returns null at the end of the round.
  const GeneratedToken* next() {
    if (phase_ != Phase::deciding) return nullptr;
    if (ended_ || emitted_ > verdict_.accepted) {
      end_round();
      return nullptr;
    }
    const int i = emitted_++;
    const std::span<const Token> drafted = drafting_.tokens();
    const bool accepted = i < verdict_.accepted;
    const Token token = accepted ? drafted[static_cast<std::size_t>(i)] : verdict_.token;
    generated_ = {.token = token, .position = static_cast<std::int64_t>(history().size()), .drafted = accepted};
    if (active_.request.logprobs.any()) verification_.report(i, generated_);
    active_.processor.push(token);
    Stats& stats = active_.stats;
    ++stats.emitted;
    ++(accepted ? stats.accepted : verdict_.accepted < std::ssize(drafted) ? stats.corrections : stats.bonuses);
    if (accepted) ++stats.accepted_at_depth[static_cast<std::size_t>(i)], stats.forced += drafting_.forces();
    if (const auto reason = reason_to_end(token)) end(*reason);
    return &generated_;
  }

  /// Ends the request after next(), by the sink's decision.
  void stop() {
    const FinishReason known = active_.stats.finish_reason;
    if (!ended_ || known == FinishReason::length || known == FinishReason::context) end(FinishReason::sink);
  }

 private:
  enum class Phase { over, reading, deciding };  // reading: the text so far is read; deciding: tokens are emitted

  /// Backlog that a draft reads together with its next proposal. A larger backlog is read first.
  static constexpr std::size_t in_reach = 16;

  /// Tokens that can be drafted after n tokens, `emitted` of them generated. Each round emits one more token than it
  /// accepts, and must leave a position for the next anchor.
  int draft_limit(int n, std::int64_t emitted) const {
    return std::min(active_.sampling().max_new_tokens - static_cast<int>(emitted) - 1, active_.target.context - n - 1);
  }

  /// Whether the draft model reads the text so far. Decided once for each backlog, or again after 16 rounds.
  bool reads_on() {
    if (reads_ || !policy_.adaptive()) return true;
    if (drafting_.left_to_read() == 0 || control_->rounds() < reads_again_) return false;
    reads_again_ = control_->rounds() + 16;
    const int left = active_.sampling().max_new_tokens - static_cast<int>(active_.stats.emitted);
    return reads_ = control_->reads(drafting_.record(), policy_.most(), drafting_.left_to_read(), left);
  }

  void count_adopted() {
    const std::int64_t before = std::exchange(adopted_, sequence().adopted());
    if (!preempted_) active_.stats.reused_tokens += adopted_ - before;
  }

  /// The reason if no token follows the prompt.
  std::optional<FinishReason> reason_for_no_token() {
    if (active_.request.pooling || active_.sampling().max_new_tokens == 0) return FinishReason::length;
    if (active_.processor.is_complete()) return FinishReason::complete;
    if (std::ssize(active_.request.prompt) == active_.target.context) return FinishReason::context;
    return std::nullopt;
  }

  std::optional<FinishReason> reason_to_end(Token token) {
    if (active_.ends.is_end(token)) return FinishReason::end_token;
    if (active_.ends.is_stop(token)) return FinishReason::stop_token;
    if (active_.processor.is_complete()) return FinishReason::complete;
    if (active_.stats.emitted >= active_.sampling().max_new_tokens) return FinishReason::length;
    if (std::ssize(history()) >= active_.target.context) return FinishReason::context;
    return std::nullopt;
  }

  /// Discards drafted tokens that were not committed.
  void end_round() {
    Stats& stats = active_.stats;
    stats.trimmed += verdict_.accepted + 1 - emitted_;
    ++stats.emitted_histogram[static_cast<std::size_t>(emitted_)];
    const int keep = static_cast<int>(history().size()) - 1;
    verification_.rewind(keep);
    const bool whole = !ended_ && verdict_.accepted == std::ssize(drafting_.tokens());
    if (!whole || !drafting_.keep_ahead(verdict_.token)) drafting_.rewind(keep);
    // A round truncated by the text's end or a limit carries no information about the draft.
    const draft_length::RoundOutcome outcome{static_cast<int>(drafting_.tokens().size()), verdict_.accepted};
    if (!ended_ && outcome.drafted > 0) {
      drafting_.observe(outcome, attempts_.probing > 0);
      if (policy_.adaptive()) control_->observe(attempts_, outcome, drafting_.by_model());
    }
    if (!ended_ && drafting_.on() && !behind_ && wanted_ > 0 && most_ == wanted_) policy_.observe(outcome);
    if (!ended_) return;
    phase_ = Phase::over;
    drafting_.end();
  }

  void end(FinishReason reason) {
    ended_ = true;
    Stats& stats = active_.stats;
    stats.finish_reason = reason;
    stats.cooldowns = attempts_.pauses;
    if (drafting_.model() != nullptr) stats.unmappable_tokens = drafting_.model()->unmappable_tokens();
    stats.total_seconds = clock_() - began_;
  }

  detail::ActiveRequest active_;
  draft_length::Policy policy_;
  detail::Drafting<Rule> drafting_;
  detail::Verification<Rule> verification_;
  draft_length::DraftControl* control_ = nullptr;  // of the current round
  int plain_step_every_;
  std::function<double()> clock_;
  Phase phase_ = Phase::over;
  std::size_t chunk_ = prompt_chunk;
  std::int64_t adopted_ = 0;  // adopted positions that the statistics include
  bool preempted_ = false;
  draft_length::Attempts attempts_;
  bool is_new_ = false;   // no round has begun
  bool reads_ = false;    // the draft model reads its backlog
  long reads_again_ = 0;  // the round of the next decision about that
  double began_ = 0;

  // State of the current round.
  double round_began_ = 0, planned_ = 0, decided_ = 0;
  draft_length::Decision decision_{};
  int wanted_ = 0;       // draft length requested by the policy
  int most_ = 0;         // draft length that fits
  bool in_step_ = true;  // the draft had no backlog to read
  bool behind_ = false;  // backlog exceeds in_reach
  bool catches_up_ = false;
  Verdict verdict_;
  int emitted_ = 0;
  bool ended_ = true;  // the request ends with one of this round's tokens
  GeneratedToken generated_;
};

}}
