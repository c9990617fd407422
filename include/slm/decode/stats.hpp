// Statistics of one generate() call. Every ratio is defined here; docs/speculative.md explains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

enum class FinishReason { end_token, stop_token, sink, length, context, cancelled, deadline, error, complete };

constexpr std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::end_token: return "end_token";
    case FinishReason::stop_token: return "stop_token";
    case FinishReason::sink: return "sink";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::deadline: return "deadline";
    case FinishReason::error: return "error";
    case FinishReason::complete: return "complete";  // the constraint permits nothing more
  }
  return "?";
}

/// Counts and times of one generate() call. A round is one forward of the target that emits at least one token;
/// a plain step is a round without drafted tokens. Identities:
///  drafted >= evaluated >= accepted            emitted = accepted + corrections + bonuses
///  rounds = plain_steps + zero_rounds + partial_rounds + full_rounds = sum of emitted_histogram
struct Stats {
  std::string rule;
  FinishReason finish_reason = FinishReason::length;
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // prompt tokens found in the target's KV cache or in shared pages

  std::int64_t rounds = 0;
  std::int64_t plain_steps = 0;
  std::int64_t zero_rounds = 0;  // rounds with no drafted token accepted
  std::int64_t partial_rounds = 0;
  std::int64_t full_rounds = 0;  // rounds with all drafted tokens accepted
  std::int64_t drafted = 0;
  std::int64_t drafted_by_model = 0;  // the rest was proposed by other sources
  std::int64_t forced = 0;            // emitted tokens that were drafted because a constraint forces their text
  std::int64_t evaluated = 0;         // drafted tokens that the rule examined, up to the first rejection
  std::int64_t accepted = 0;          // drafted tokens that were emitted
  std::int64_t corrections = 0;       // emitted after a rejection
  std::int64_t bonuses = 0;           // emitted after a fully accepted draft, or by a plain step
  std::int64_t emitted = 0;
  std::int64_t trimmed = 0;  // accepted or chosen, but not emitted because generation ended first

  std::vector<std::int64_t> drafted_at_depth;   // [draft length]: rounds that drafted a token at depth 1, 2, ...
  std::vector<std::int64_t> accepted_at_depth;  // [draft length]: rounds that emitted it
  std::vector<std::int64_t> emitted_histogram;  // [draft length + 2]: rounds that emitted 0, 1, 2, ... tokens

  std::int64_t drafts_ahead = 0;  // rounds in which the draft guessed the bonus token during verification and continued
  std::int64_t drafts_ahead_held = 0;  // of those, rounds whose guess was right, so that the next draft had begun

  std::int64_t draft_forwards = 0;          // excludes reading the prompt
  std::int64_t target_forwards = 0;         // excludes reading the prompt
  std::vector<std::int64_t> verify_rounds;  // [draft length + 2]: target forwards over 0, 1, 2, ... tokens
  std::vector<double> verify_row_seconds;   // [draft length + 2]: their total seconds

  double draft_seconds = 0;   // proposing and choosing drafted tokens
  double verify_seconds = 0;  // the target's forwards
  double sample_seconds = 0;  // distributions and the verification rule
  double prefill_draft_seconds = 0;
  double prefill_target_seconds = 0;
  double total_seconds = 0;  // the whole call

  int draft_length = 0;  // requested in the last round
  std::int64_t draft_length_changes = 0;
  std::int64_t cooldowns = 0;          // pauses of the adaptive draft length because drafting did not pay
  std::int64_t common_tokens = 0;      // of a draft with another tokenizer; 0: it has the target's
  std::int64_t unmappable_tokens = 0;  // that the draft lacks; it read a stand-in or several tokens
  std::int64_t draft_faults = 0;       // unusable logits, exceptions, ids out of range
  std::string disabled_reason;         // why generation continued without the draft; empty if it did not

  std::int64_t draft_bytes_per_step = 0;  // weight bytes read per step; 0: unknown
  std::int64_t target_bytes_per_step = 0;

  /// Sizes the lists for at most `most` drafted tokens per round.
  void start(int most) {
    const auto size = static_cast<std::size_t>(most);
    drafted_at_depth.assign(size, 0);
    accepted_at_depth.assign(size, 0);
    emitted_histogram.assign(size + 2, 0);
    verify_rounds.assign(size + 2, 0);
    verify_row_seconds.assign(size + 2, 0.0);
  }

  /// Counts a round of m drafted tokens, of which the rule examined `looked_at` and accepted `taken`.
  void count_round(std::size_t m, int looked_at, int taken) {
    ++rounds;
    ++target_forwards;
    drafted += static_cast<std::int64_t>(m);
    evaluated += looked_at;
    for (std::size_t depth = 0; depth < m; ++depth) ++drafted_at_depth[depth];
    ++(m == 0 ? plain_steps : taken == 0 ? zero_rounds : taken < static_cast<int>(m) ? partial_rounds : full_rounds);
  }

  /// Adds the seconds of a round with m drafted tokens.
  void add_seconds(std::size_t m, double draft, double verify, double sample) {
    draft_seconds += draft;
    verify_seconds += verify;
    sample_seconds += sample;
    ++verify_rounds[m + 1];
    verify_row_seconds[m + 1] += verify;
  }

  /// accepted / drafted, as AMD and llama.cpp define it.
  double acceptance_rate() const { return ratio(accepted, drafted); }
  /// accepted / evaluated, as ONNX Runtime GenAI defines it; estimates the acceptance per token.
  double evaluated_acceptance_rate() const { return ratio(accepted, evaluated); }
  /// New tokens per forward of the target (vLLM's mean acceptance length); 1 for plain decoding.
  double tokens_per_target_step() const { return ratio(emitted, rounds); }
  /// Share of drafts ahead whose guess of the bonus token was right (Speculation::overlap).
  double early_draft_rate() const { return ratio(drafts_ahead_held, drafts_ahead); }
  /// Share of new tokens that were drafted as forced text.
  double forced_share() const { return ratio(forced, emitted); }
  double mean_draft_length() const { return ratio(drafted, rounds); }
  /// Share of tokens drafted at this depth (0: the first) that were emitted.
  double acceptance_at_depth(std::size_t depth) const {
    return depth < drafted_at_depth.size() ? ratio(accepted_at_depth[depth], drafted_at_depth[depth]) : 0;
  }

  double prefill_seconds() const { return prefill_draft_seconds + prefill_target_seconds; }
  double decode_seconds() const { return total_seconds - prefill_seconds(); }
  /// New tokens per second of decoding, excluding the prompt.
  double tokens_per_second() const { return per_second(emitted, decode_seconds()); }
  /// New tokens per second of the whole call.
  double tokens_per_second_with_prefill() const { return per_second(emitted, total_seconds); }

  /// Mean seconds of a target forward over `rows` tokens; 0 if there was none.
  double verify_step_seconds(std::size_t rows) const {
    if (rows >= verify_rounds.size() || verify_rounds[rows] == 0) return 0;
    return verify_row_seconds[rows] / static_cast<double>(verify_rounds[rows]);
  }
  /// Draft seconds per drafted token divided by the seconds of a plain target step (c); 0 if no plain step was timed.
  double draft_cost() const {
    const double plain = verify_step_seconds(1);
    return plain > 0 && drafted > 0 ? draft_seconds / static_cast<double>(drafted) / plain : 0;
  }
  /// v(rows): seconds of a target step over `rows` tokens divided by those of a plain step; 0 if either was not timed.
  double verify_cost(std::size_t rows) const {
    const double plain = verify_step_seconds(1);
    return plain > 0 ? verify_step_seconds(rows) / plain : 0;
  }
  /// Speedup over plain decoding, estimated from this call's plain steps: tokens per round times seconds of a plain
  /// step, divided by seconds of a round. 0 if no plain step was timed (see Speculation::plain_step_every).
  double predicted_speedup() const {
    const double plain = verify_step_seconds(1);
    const double spent = draft_seconds + verify_seconds + sample_seconds;
    if (!(plain > 0) || !(spent > 0)) return 0;
    return (static_cast<double>(emitted) * plain + sample_seconds) / spent;
  }

 private:
  static double ratio(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
  static double per_second(std::int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

/// Prints a compact table, with lines about drafting only if something was drafted.
inline std::ostream& operator<<(std::ostream& out, const Stats& stats) {
  std::ostringstream table;
  table << std::fixed;
  const auto line = [&table](std::string_view label) -> std::ostream& {
    return table << "  " << std::left << std::setw(24) << label;
  };
  const auto milliseconds = [](double seconds) { return seconds * 1e3; };
  line("new tokens") << stats.emitted << " in " << std::setprecision(3) << stats.total_seconds << " s, ended by "
                     << name_of(stats.finish_reason) << "\n";
  line("tokens per second") << std::setprecision(1) << stats.tokens_per_second() << " decoding, "
                            << stats.tokens_per_second_with_prefill() << " including the prompt's "
                            << stats.prompt_tokens << " tokens\n";
  line("target steps") << stats.rounds << " for " << stats.emitted << " tokens, " << std::setprecision(2)
                       << stats.tokens_per_target_step() << " tokens per step, " << stats.emitted - stats.rounds
                       << " steps saved\n";
  if (stats.drafted > 0) {
    line("acceptance") << std::setprecision(3) << stats.acceptance_rate() << " (" << stats.accepted << " of "
                       << stats.drafted << " drafted), " << stats.evaluated_acceptance_rate() << " of the "
                       << stats.evaluated << " evaluated, rule " << stats.rule << "\n";
    line("acceptance by depth") << std::setprecision(2);
    for (std::size_t depth = 0; depth < stats.drafted_at_depth.size() && stats.drafted_at_depth[depth] > 0; ++depth) {
      table << (depth > 0 ? " " : "") << stats.acceptance_at_depth(depth);
    }
    table << "\n";
    line("rounds") << stats.full_rounds << " fully, " << stats.partial_rounds << " partly, " << stats.zero_rounds
                   << " not accepted, " << stats.plain_steps << " plain; mean draft length " << std::setprecision(2)
                   << stats.mean_draft_length() << "\n";
  }
  if (stats.forced > 0) {
    line("forced by the grammar") << stats.forced << " tokens (" << std::setprecision(3) << stats.forced_share()
                                  << ")\n";
  }
  if (stats.drafts_ahead > 0) {
    line("drafted ahead") << stats.drafts_ahead << " rounds, of which " << stats.drafts_ahead_held << " held ("
                          << std::setprecision(3) << stats.early_draft_rate() << ")\n";
  }
  line("milliseconds") << std::setprecision(1) << milliseconds(stats.verify_seconds) << " target, "
                       << milliseconds(stats.draft_seconds) << " draft, " << milliseconds(stats.sample_seconds)
                       << " choosing, " << milliseconds(stats.prefill_seconds()) << " prompt\n";
  if (stats.drafted > 0 && stats.predicted_speedup() > 0) {
    line("predicted speedup") << std::setprecision(2) << stats.predicted_speedup() << "x (draft step costs "
                              << stats.draft_cost() << " target steps)\n";
  }
  if (stats.common_tokens > 0) line("tokens in common") << stats.common_tokens << " of draft and target\n";
  if (stats.unmappable_tokens > 0) line("ids unknown to draft") << stats.unmappable_tokens << "\n";
  if (!stats.disabled_reason.empty()) line("continued without draft") << stats.disabled_reason << "\n";
  return out << table.str();
}

}}
