// DraftControl: the adaptive draft length. It decides the drafts of a round over all requests, from measured step times
// and acceptance, and limits what speculation may cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "slm/decode/acceptance.hpp"
#include "slm/decode/step_seconds.hpp"

namespace slm { inline namespace v0_1 { namespace draft_length {

/// Work of a round besides drafting.
struct Load {
  int texts = 0;  // sequences that decode, one row each
  int rows = 0;   // rows of the target's step: decoding sequences and prompts
};

/// The attempts of one text to draft.
struct Attempts {
  long resume = 0;  // the round in which the pause ends; 0: no pause
  int wait = 16;    // rounds of the next pause
  int probing = 0;  // rounds that the present probe may still take
  int pauses = 0;
};

/// The tokens that a text can draft in a round, and the decision. Lists hold, by depth, the probability that all tokens
/// up to that depth are accepted.
struct Decision {
  Attempts* attempts;
  std::span<const float> tokens;  // tokens proposed without a model
  bool estimated = false;         // their source estimates its probabilities itself, so that it needs no probes
  std::span<const float> model;   // tokens that the draft model could draft
  // Results.
  bool by_model = false;
  int length = 0;
};

/// Shared by all texts of a decoder or an engine. A round's drafts maximise expected tokens per second: accepted tokens
/// over the time of the target's step, which all rows share, and of the draft model's steps, which all texts share.
///
/// The account: `balance_` is the time that speculation may still lose, in plain steps. It grows by 1 % of plain
/// decoding and by what speculation saves, up to a small limit, and falls by what speculation loses. Below zero
/// no text drafts. Reading texts by the draft model has a separate account, which grows by 0.5 %.
class DraftControl {
 public:
  /// present: sequences that decode or will decode, including those waiting to be read.
  void begin_round(const Load& load, int present) {
    load_ = load;
    later_ = {present, present};
    usual_drafting_ = std::numeric_limits<double>::infinity();
    ++rounds_;
  }
  /// Number of rounds so far, the current one included.
  long rounds() const { return rounds_; }

  /// A new text must first save what it may lose, except a little that earlier texts have saved.
  void begin_text() {
    saving_ *= 1 - 1.0 / std::max(load_.texts, 1);
    settle(0);
    const double lent = std::clamp(first_balance - balance_, 0.0, reserve_);
    balance_ += lent;
    reserve_ -= lent;
    if (later_.texts <= 1) scout_ = 0;
  }

  /// Decides about the decoding texts of the round.
  void choose(std::span<Decision> decisions) {
    for (Decision& one : decisions) one.by_model = false, one.length = 0;
    if (decisions.empty() || balance_ < 0 || !verify_.reaches_down_to(load_.rows) || is_time_for_plain()) return;
    const bool looks = rounds_ >= next_look_;  // tests whether costs have fallen
    if (looks) next_look_ = rounds_ + std::exchange(look_wait_, std::min(2 * look_wait_, last_wait));
    const double ease = looks ? 0.5 : 1;
    for (Decision& one : decisions) end_pause(one, looks);
    optimise(decisions, ease);
    for (Decision& one : decisions) finish(one, ease);
  }

  /// After a round in which a text drafted by a source with a record. by_model: by the draft model.
  void observe(Attempts& attempts, const RoundOutcome& round, bool by_model) {
    if (by_model) others_.observe(round);
    if (attempts.probing == 0 || round.drafted == 0) return;
    --attempts.probing;
    if (round.accepted == 0) pause(attempts);  // else the probe continues
  }

  /// Acceptance of the draft model in all texts.
  const AcceptanceRecord& others() const { return others_; }

  /// Records drafting time. texts: sequences without a backlog. steps: the longest draft among them.
  void took_draft(int texts, int steps, double seconds) {
    draft_.take(texts, seconds / steps);
    usual_drafting_ = steps * draft_.at(texts);
  }
  /// Records the time in which the draft model only read texts.
  void took_reading(int rows, double seconds) { read_.take(seconds / rows, 16); }
  /// Records the target's step and the choice of tokens, and settles the account. emitted: tokens of all texts.
  /// drafting: seconds of drafting.
  void took_verification(int rows, double seconds, int emitted, double drafting) {
    const double usual = verify_.at(load_.rows) + more(rows - load_.rows, load_);
    verify_.take(rows, seconds);
    if (load_.texts == 0) return;
    longest_ = std::max(longest_, (rows - load_.rows) / load_.texts);
    const double plain = verify_.at(load_.texts), tokens = std::max(1.0, 1.0 * emitted / load_.texts);
    // One delay alone would have delayed a plain step as well, and does not count.
    const bool delayed = rows > load_.rows && (seconds > most_delay * usual || drafting > most_delay * usual_drafting_);
    if (!std::exchange(was_delayed_, delayed) && delayed) {
      seconds = std::min(seconds, most_delay * usual);
      drafting = std::min(drafting, most_delay * usual_drafting_);
    }
    // A step with prompts or without drafts costs what it did before; others cost what they took.
    const double step = rows == load_.rows         ? plain
                        : load_.rows > load_.texts ? plain + verify_.at(rows) - verify_.at(load_.rows)
                                                   : seconds;
    const double saved = tokens - std::min(step + drafting, most_loss * plain) / plain;
    saving_ += (saved - saving_) / 16;
    settle(earned * tokens + saved);
    reading_balance_ = std::min(reading_balance_ + earned / 2 * tokens + std::max(0.0, saved / 16), most_reading);
  }

  /// Whether the draft model should read `backlog` tokens of a text. left: most tokens that may follow.
  bool reads(const AcceptanceRecord& model, int most, std::size_t backlog, int left) {
    if (!know_drafts()) {  // one text at first
      const bool first = scout_ == 0 || rounds_ > scout_ + scout_again;
      if (first) scout_ = rounds_;
      return first;
    }
    if (!could_pay(most, later_, 0.5)) return false;
    // In plain steps of all texts; a text's part of what they save is one of later_.texts.
    const double token = read_.count > 0 ? read_.mean : draft(1) / 4;
    const double cost = token * static_cast<double>(backlog) / seconds(0, later_);
    const double gain = gain_of(model, most);
    if (gain > worth_reading && std::min(left, 256) * (1 - 1 / gain) > 3 * cost * later_.texts) return true;
    if (reading_balance_ < cost) return false;
    reading_balance_ -= cost;
    return true;
  }

  bool know_drafts() const { return draft_.reaches_down_to(most_rows); }
  double balance() const { return balance_; }
  /// Seconds of a round in which each decoding sequence drafts `drafted` tokens. Excludes prompt rows, which are read
  /// anyway.
  double seconds(int drafted, const Load& load) const {
    return std::max(verify_.at(load.texts) + more(load.texts * drafted, load) + drafted * draft(load.texts), 1e-12);
  }

 private:
  static constexpr double earned = 0.01;
  static constexpr double first_balance = 2, most_reserve = 16;  // in plain steps
  static constexpr double most_reading = 16;                     // in plain steps
  static constexpr double most_loss = 16;                        // of a round, in plain steps: more is an outlier
  static constexpr double overdraft = 1;                         // of the account, in plain steps
  static constexpr double most_delay = 1.25;                     // of a step, relative to its usual time
  static constexpr double least_gain = 1.03;                     // smaller gains may be noise
  static constexpr double close = 1.25;                          // as a gain
  static constexpr double worth_reading = 1.1;
  static constexpr int recheck_plain = 64, recheck_close = 16;
  static constexpr int scout_again = 256;  // rounds
  static constexpr int explore_every = 32;
  static constexpr int probe_rounds = 8;
  static constexpr int first_wait = 16, last_wait = 1024;
  static constexpr int first_steps = 3;
  static constexpr int most_rows = 1 << 30;

  struct Row {
    float survival;
    std::size_t text;
  };

  /// Falls between the rounds in which sequences probe and explore.
  bool is_time_for_plain() const {
    const int every = gain_ < close ? recheck_close : recheck_plain;
    return rounds_ % every == every / 2;
  }

  /// Changes the account. The reserve holds what exceeds its limit.
  void settle(double change) {
    const double sum = balance_ + change;
    balance_ = std::min(sum, most_balance());
    reserve_ = std::min(reserve_ + sum - balance_, most_reserve);
  }

  /// In plain steps: grows with the recent savings per round, so that one bad round does not end a good stretch.
  double most_balance() const { return 3 + 6 * std::max(0.0, saving_); }

  /// Number of measured steps with a few drafted tokens per text.
  int drafted_steps(const Load& load) const {
    return verify_.count_above(load.rows, load.rows + 12 * std::max(load.texts, 1));
  }

  /// Whether a cost that was measured `steps` times may be lower, and the account allows to find out.
  bool doubts(int steps) const { return steps < first_steps && balance_ >= first_balance / 2; }

  /// Seconds of a step of the draft model. The first steps may be slow: they count no more than the usual cost.
  double draft(int texts) const {
    const double usual = 0.2 * verify_.at(1);
    if (!know_drafts()) return usual;
    return doubts(draft_.count_above(0, most_rows)) ? std::min(draft_.at(texts), usual) : draft_.at(texts);
  }
  /// Additional seconds of a step for `rows` drafted tokens.
  double more(int rows, const Load& load) const {
    const double base = verify_.at(load.rows), measured = std::max(verify_.at(load.rows + rows) - base, 0.0);
    const int steps = drafted_steps(load);
    if (steps > 0 && !doubts(steps)) return measured;
    const double usual = rows * base * std::min(0.1, 0.5 / std::max(load.rows, 1));
    return measured > 0 ? std::min(measured, usual) : usual;  // long prompts say little, the first step nothing
  }

  /// Whether drafting could pay if up to `limit` drafted tokens per sequence were all accepted.
  bool could_pay(int limit, const Load& load, double ease) const {
    const double plain = seconds(0, load);
    for (int drafted = 1; drafted <= limit; ++drafted) {
      if ((1 + drafted) * plain > plain + ease * (seconds(drafted, load) - plain)) return true;
    }
    return false;
  }

  /// Tokens per second relative to plain steps if all texts drafted with this record.
  double gain_of(const AcceptanceRecord& record, int most) {
    survival_.clear();
    record.append_survival(survival_, most);
    const double plain = seconds(0, later_);
    double tokens = 1, best = 1;
    for (int k = 1; k <= most; ++k) {
      tokens += survival_[static_cast<std::size_t>(k - 1)];
      best = std::max(best, tokens * plain / seconds(k, later_));
    }
    return best;
  }

  /// Withdraws the offers that depend on a record while the text pauses.
  void end_pause(Decision& one, bool looks) {
    Attempts& attempts = *one.attempts;
    if (rounds_ < attempts.resume) {
      if (looks) return;
      one.model = {};
      if (!one.estimated) one.tokens = {};
    } else if (attempts.resume > 0) {
      attempts.resume = 0;
      attempts.probing = probe_rounds;
    }
  }

  /// Sets the drafts with the most expected tokens per second. Tries each number of steps of the draft model.
  void optimise(std::span<Decision> decisions, double ease) {
    std::size_t longest = 0, all = 0;
    for (Decision& one : decisions) {
      shorten(one.tokens), shorten(one.model);
      longest = std::max(longest, one.model.size());
      all += std::max(one.tokens.size(), one.model.size());
    }
    rows_.reserve(64 * decisions.size());  // so that later rounds do not allocate
    more_.reserve(64 * decisions.size());
    more_.clear();
    for (std::size_t rows = 0; rows <= all; ++rows) more_.push_back(ease * more(static_cast<int>(rows), load_));
    const double plain = std::max(verify_.at(load_.texts), 1e-12), texts = load_.texts;
    const double most_lost = (balance_ + overdraft) * plain;  // if all drafts are rejected
    double best = least_gain * texts / plain;
    gain_ = 1;
    std::size_t best_rows = 0, best_steps = 0;
    for (std::size_t steps = 0; steps <= longest; ++steps) {
      const int models = gather(decisions, steps);
      if (steps > 0 && models == 0) continue;
      double tokens = texts;
      const double base = plain + (steps > 0 ? ease * static_cast<double>(steps) * draft(models) : 0);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        tokens += static_cast<double>(rows_[i].survival);
        const double seconds = base + more_[i + 1];
        if (seconds - plain > most_lost) break;
        const double rate = tokens / seconds;
        if (rate > best) best = rate, best_rows = i + 1, best_steps = steps;
      }
    }
    if (best_rows == 0) return;
    gain_ = best * plain / texts;
    gather(decisions, best_steps);
    for (std::size_t i = 0; i < best_rows; ++i) ++decisions[rows_[i].text].length;
  }

  /// Limits a draft to lengths near those whose cost has been measured.
  void shorten(std::span<const float>& list) const {
    list = list.first(std::min(static_cast<std::size_t>(2 * longest_ + 2), list.size()));
  }

  /// Lists the tokens that could be drafted if the model ran `steps` steps, the most probable ones first. Returns the
  /// number of texts that use the model.
  int gather(std::span<Decision> decisions, std::size_t steps) {
    const auto sum = [](std::span<const float> list) {
      float total = 0;
      for (const float one : list) total += one;
      return total;
    };
    rows_.clear();
    int models = 0;
    for (std::size_t text = 0; text < decisions.size(); ++text) {
      Decision& one = decisions[text];
      const std::span<const float> model = one.model.first(std::min(steps, one.model.size()));
      one.by_model = !model.empty() && sum(model) > sum(one.tokens);
      models += one.by_model;
      for (const float survival : one.by_model ? model : one.tokens) rows_.push_back({survival, text});
    }
    if (decisions.size() > 1) {  // no stable_sort, which allocates: equal rows of a text may change places
      std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
        return a.survival > b.survival || (a.survival == b.survival && a.text < b.text);
      });
    }
    return models;
  }

  /// Explores, probes, or begins a pause.
  void finish(Decision& one, double ease) {
    Attempts& attempts = *one.attempts;
    const std::span<const float> recorded = !one.model.empty() ? one.model
                                            : !one.estimated   ? one.tokens
                                                               : std::span<const float>{};
    if (one.length > 0) {
      if (one.by_model || !one.estimated) attempts.wait = first_wait, attempts.probing = 0;
      if (one.by_model && rounds_ % explore_every == 0 && one.length < static_cast<int>(one.model.size())) ++one.length;
      return;
    }
    one.by_model = false;
    if (recorded.empty() || rounds_ < attempts.resume) return;
    if (attempts.probing == 0) return pause(attempts);
    if (!could_pay(static_cast<int>(recorded.size()), load_, ease)) return;
    one.by_model = !one.model.empty();
    one.length = std::min<int>(2, static_cast<int>(recorded.size()));
  }

  void pause(Attempts& attempts) {
    ++attempts.pauses;
    attempts.probing = 0;
    const long wait = attempts.wait;
    attempts.resume = (rounds_ + wait + wait / 2) / wait * wait;  // in `wait` rounds on average, common to all texts
    attempts.wait = std::min(2 * attempts.wait, last_wait);
  }

  Load load_, later_;
  long rounds_ = 0;
  long next_look_ = 32;  // the round in which costs are tried again
  int look_wait_ = 32;
  long scout_ = 0;  // the round in which the first text was chosen to be read
  StepSeconds verify_, draft_;
  double usual_drafting_ = 0;  // of the round
  bool was_delayed_ = false;   // the last step with drafts
  int longest_ = 0;            // drafted tokens per text of the steps so far
  AcceptanceRecord others_{most_draft_tokens, 512};
  Average read_;  // seconds per token
  double balance_ = first_balance, reserve_ = 0, reading_balance_ = 0;
  double saving_ = 0;         // of recent rounds, in plain steps per round
  double gain_ = 1;           // expected in the last round that could draft
  std::vector<Row> rows_;     // scratch
  std::vector<double> more_;  // scratch: additional seconds by number of drafted tokens
  std::vector<float> survival_;
};

}}}
