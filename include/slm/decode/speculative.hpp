// Speculative decoding: a draft proposes some tokens, the target checks them all in one forward, and the text that
// comes out follows the target's law exactly. Plain decoding is the same loop with nothing drafted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/coin.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/decode/processor.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/sink.hpp"
#include "slm/decode/stats.hpp"
#include "slm/decode/vocabulary.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/session.hpp"

namespace slm {

/// Draft is a LanguageModel or a Drafter (NgramDrafter, NoDrafter, ...). Target is a LanguageModel. Rule is one of
/// rule::Coupled, rule::Ratio, rule::Block, rule::Match.
///
/// Between rounds, with n tokens committed: the target has read n - 1 of them, all but the last one (the anchor); the
/// draft has read at most as many; penalties and draws depend on exactly those n tokens.
template <class Draft, LanguageModel Target, class Rule = rule::Coupled>
class SpeculativeDecoder {
  using DrafterType = typename DrafterFor<Draft>::type;

  static_assert(LanguageModel<Draft> || Drafter<Draft>,
                "slm: the draft must be a LanguageModel or have propose() (see slm/decode/drafter.hpp)");
  static_assert(!Rule::needs_distribution || DistributionDrafter<DrafterType>,
                "slm: this verification rule needs the draft's distribution, and this drafter only proposes tokens; "
                "use rule::Coupled or rule::Match");
  static_assert(static_vocab_of<Draft>() == 0 || static_vocab_of<Target>() == 0 ||
                    sizes_may_match(static_vocab_of<Draft>(), static_vocab_of<Target>()),
                "slm: the vocabularies of draft and target differ by more than 256 ids: different tokenizers");

 public:
  /// Throws Error when draft and target have different tokenizers, or the draft length is out of range or not lossless
  /// under this rule.
  SpeculativeDecoder(Draft draft, Target target, Speculation speculation = {}, Rule rule = {})
      : drafter_(std::move(draft)),
        target_(std::move(target)),
        speculation_(std::move(speculation)),
        policy_(policy_of(speculation_)),
        rule_(std::move(rule)) {
    if constexpr (requires { drafter_.info(); }) check_same_tokenizer(drafter_.info(), target_.info());
    if (policy_.drops() && !Rule::may_drop) {
      throw Error("decode.lossy-drop",
                  text("the rule ", Rule::name, " is not lossless when a drafted token is dropped for low confidence"),
                  "Keep the token (Confidence::drop = false), or use the rule coupled or match");
    }
  }

  /// Continues `prompt` and hands each new token to `sink`, which takes a Token or an GeneratedToken and may return
  /// false to stop. Tokens the KV caches still hold from the last call are not read again. Throws Error on an unusable
  /// prompt, sampling or target; trouble in the draft ends drafting only (Stats::disabled_reason).
  template <class Sink>
  Stats generate(std::span<const Token> prompt, const Sampling& sampling, Sink&& sink) {
    using SinkType = std::remove_reference_t<Sink>;
    static_assert(TokenSink<SinkType> || GeneratedTokenSink<SinkType>,
                  "slm: the sink must be callable with a slm::Token or a const slm::GeneratedToken&");
    const double began = now();
    check_prompt(prompt, target_.info());
    validate(sampling, target_.info().vocab);
    Stats stats;
    start(prompt, sampling, stats);
    bool going = sampling.max_new_tokens > 0;
    if (going && prompt.size() == static_cast<std::size_t>(target_.info().context)) {
      stats.finish_reason = FinishReason::context;
      going = false;
    }
    if (going) prefill(prompt, stats);
    while (going) going = round(sampling, sink, stats);
    finish(sink);
    stats.cooldowns = policy_.cooldowns() - stats.cooldowns;
    if constexpr (requires { drafter_.unmappable_tokens(); }) stats.unmappable_tokens = drafter_.unmappable_tokens();
    stats.total_seconds = now() - began;
    return stats;
  }

  const Target& target() const { return target_.model(); }
  const DrafterType& drafter() const { return drafter_; }
  /// What the target has read: prompt and output of the last call but for the last token.
  const Sequence& sequence() const { return target_.sequence(); }
  /// Prompt and output of the last call.
  std::span<const Token> history() const { return processor_.history(); }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  double now() const { return speculation_.clock ? speculation_.clock() : steady_seconds(); }

  void start(std::span<const Token> prompt, const Sampling& sampling, Stats& stats) {
    const std::span<const Token> held = target_.tokens();  // of the last call
    std::size_t common = 0;
    while (common < held.size() && common + 1 < prompt.size() && held[common] == prompt[common]) ++common;
    target_.truncate(static_cast<int>(common));

    const int most = policy_.most();
    const int vocab = target_.info().vocab;
    const int longest = std::min(sampling.max_new_tokens, target_.info().context - static_cast<int>(prompt.size()));
    processor_.start(sampling, vocab, prompt, at(longest + most) + 1);
    ends_.start(target_.info(), sampling.ignore_end_tokens, sampling.stop_tokens);
    policy_.restart();
    draft_on_ = true;
    drafted_.reserve(at(most) + 1);
    verify_.reserve(at(most) + 1);
    target_.reserve(most + 1, most + 1);
    p_.resize(at(most) + 1);
    q_.resize(Rule::needs_distribution ? at(most) + 1 : 1);
    reports_.resize(at(most) + 1);
    for (LogprobReport& report : reports_) report.reserve(sampling.top_logprobs);
    if (!sampling.greedy()) {
      const std::size_t support = processor_.support(at(vocab));
      for (Distribution& row : p_) row.reserve(support);
      for (Distribution& row : q_) row.reserve(support);
      if constexpr (requires { rule_.reserve(support, most); }) rule_.reserve(support, most);
    }
    stats.start(most);
    stats.rule = Rule::name;
    stats.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    stats.reused_tokens = static_cast<std::int64_t>(common);
    stats.cooldowns = policy_.cooldowns();
    stats.target_bytes_per_step = target_.info().step_bytes;
    if constexpr (requires { drafter_.info(); }) stats.draft_bytes_per_step = drafter_.info().step_bytes;
  }

  /// Reads the prompt but its last token, which is the first anchor.
  void prefill(std::span<const Token> prompt, Stats& stats) {
    const double began = now();
    const auto read = static_cast<std::size_t>(target_.length());
    if (prompt.size() - 1 > read) target_.forward(prompt.subspan(read, prompt.size() - 1 - read), 0);
    const double between = now();
    if constexpr (requires { drafter_.start(prompt); }) {
      if (policy_.most() > 0) guard(stats, [&] { drafter_.start(prompt); });
    }
    stats.prefill_target_seconds = between - began;
    stats.prefill_draft_seconds = now() - between;
  }

  /// Drafts, verifies, emits. False when generation has ended.
  template <class Sink>
  bool round(const Sampling& sampling, Sink& sink, Stats& stats) {
    const int n = static_cast<int>(processor_.history().size());
    const int context = target_.info().context;
    const int wanted = draft_on_ ? policy_.next() : 0;
    const int every = speculation_.plain_step_every;
    const int asked = every > 0 && (stats.rounds + 1) % every == 0 ? 0 : wanted;
    // Each round emits one token besides the accepted ones, and leaves room for the next anchor.
    int most = std::min({asked, sampling.max_new_tokens - static_cast<int>(stats.emitted) - 1, context - n - 1});
    bool in_step = true;
    if constexpr (requires { drafter_.context(); }) most = std::min(most, drafter_.context() - n);
    if constexpr (requires { drafter_.length(); }) in_step = n - drafter_.length() <= 2;
    if (stats.rounds > 0 && asked != stats.draft_length) ++stats.draft_length_changes;
    stats.draft_length = asked;

    const PhiloxCoin coin{sampling.seed, static_cast<std::uint64_t>(n)};
    drafted_.clear();
    const double began = now();
    const std::optional<Draw> draw = draw_for_models(sampling);
    if (most > 0) propose(sampling, coin, draw, most, stats);
    const double drafted = most > 0 ? now() : began;

    const int m = static_cast<int>(drafted_.size());
    verify_.assign(1, processor_.history().back());
    verify_.insert(verify_.end(), drafted_.begin(), drafted_.end());
    std::span<const Token> choices;  // where the target makes them
    if constexpr (!GeneratedTokenSink<Sink>) {
      if (draw && target_.info().chooses) choices = target_.choose(verify_, m + 1, *draw);
    }
    const auto rows = choices.empty() ? target_.forward(verify_, m + 1) : View<const float, 2>{};
    const double verified = now();
    const Verdict verdict =
        choices.empty() ? choose<GeneratedTokenSink<Sink>>(sampling, coin, rows) : agreement(drafted_, [&](int i) {
          if (choices[at(i)] == no_token) refuse_row();
          return choices[at(i)];
        });
    const double chosen = now();

    stats.count_round(drafted_.size(), verdict.evaluated, verdict.accepted);
    stats.add_seconds(drafted_.size(), drafted - began, verified - drafted, chosen - verified);
    const bool going = emit(sampling, sink, verdict, stats);
    const int keep = static_cast<int>(processor_.history().size()) - 1;
    if (target_.length() > keep) target_.truncate(keep);
    if constexpr (requires { drafter_.rewind(keep); }) {
      if (draft_on_) guard(stats, [&] { drafter_.rewind(keep); });
    }
    // A round cut short by the text's end or by a limit says nothing about the draft.
    if (going && draft_on_ && most == wanted)
      policy_.observe({m, verdict.accepted, drafted - began, chosen - drafted, in_step});
    return going;
  }

  /// The draw by which models may choose tokens themselves; nothing when logits or distributions are needed here.
  std::optional<Draw> draw_for_models(const Sampling& sampling) const {
    if constexpr (std::is_same_v<Rule, rule::Coupled>) return processor_.draw();
    return sampling.greedy() ? processor_.draw() : std::nullopt;
  }

  /// Fills drafted_, and q_ with the distributions they were drawn from. Whatever goes wrong in the draft, the tokens
  /// proposed before it stand.
  void propose(const Sampling& sampling, const PhiloxCoin& coin, const std::optional<Draw>& draw, int most,
               Stats& stats) {
    if constexpr (requires { drafter_.propose_by(processor_.history(), most, *draw, drafted_); }) {
      if (draw && !policy_.wants_confidence() && drafter_.chooses()) {
        guard(stats, [&] { drafter_.propose_by(processor_.history(), most, *draw, drafted_); });
        stats.draft_forwards += static_cast<std::int64_t>(drafted_.size());
        return take_valid(most, stats);
      }
    }
    if constexpr (DistributionDrafter<DrafterType>) {
      bool over = false;
      auto choose_next = [&](std::span<const float> row) -> std::optional<Token> {
        if (over) {
          fault(stats, "the draft offered more rows than were asked for");
          return std::nullopt;
        }
        ++stats.draft_forwards;
        const auto token = draft_token(sampling, coin, row, over, stats);
        over = over || !token || static_cast<int>(drafted_.size()) >= most || ends_.any(*token);
        return over ? std::nullopt : token;
      };
      guard(stats, [&] { drafter_.propose(processor_.history(), ChooseNext{choose_next}); });
      for (std::size_t i = 0; i < drafted_.size(); ++i) processor_.pop();
    } else {
      guard(stats, [&] { drafter_.propose(processor_.history(), most, drafted_); });
      take_valid(most, stats);
    }
  }

  /// Chooses one drafted token after the present history and appends it; nothing when the row is unusable or the token
  /// was dropped. Sets `over` when the policy wants the draft to end here.
  std::optional<Token> draft_token(const Sampling& sampling, const PhiloxCoin& coin, std::span<const float> row,
                                   bool& over, Stats& stats) {
    // Ids that only the draft has are cut off, ids that only the target has are never drafted: q is 0 there.
    row = row.first(std::min(row.size(), at(target_.info().vocab)));
    const int i = static_cast<int>(drafted_.size());
    Distribution& q = q_[Rule::needs_distribution ? at(i) : 0];
    Token token = no_token;
    if (sampling.greedy()) {
      token = processor_.greedy(row);
    } else if (processor_.distribution(row, q)) {
      token = Rule::draft(coin, i, q);
    }
    if (token == no_token) {
      fault(stats, text("the draft's logits are not finite at token ", processor_.history().size()));
      return std::nullopt;
    }
    if (policy_.wants_confidence()) {
      double confidence = 0;
      if (sampling.greedy()) {
        LogprobReport& report = reports_[at(i)];
        report.by_row(processor_, row, token, 0);
        confidence = std::exp(report.logprob());
      } else {
        confidence = q.of(token);
      }
      over = !policy_.go_on(confidence);
      if (over && policy_.drops()) return std::nullopt;
    }
    drafted_.push_back(token);
    processor_.push(token);
    return token;
  }

  /// Runs the rule on the target's rows. Rows are processed when the rule asks for them, each with its own prefix.
  template <bool with_logprobs>
  Verdict choose(const Sampling& sampling, const PhiloxCoin& coin, View<const float, 2> rows) {
    const auto row = [&](int i) { return std::span<const float>{rows.row(i), at(target_.info().vocab)}; };
    int pushed = 0;
    const auto advance = [&](int i) {
      for (; pushed < i; ++pushed) processor_.push(drafted_[at(pushed)]);
    };
    Verdict verdict;
    if (sampling.greedy()) {
      verdict = agreement(drafted_, [&](int i) {
        advance(i);
        const Token token = processor_.greedy(row(i));
        if (token == no_token) refuse_row();
        if constexpr (with_logprobs) reports_[at(i)].by_row(processor_, row(i), token, sampling.top_logprobs);
        return token;
      });
    } else {
      int ready = 0;
      const auto target_row = [&](int i) -> const Distribution& {
        for (; ready <= i; ++ready) {
          advance(ready);
          if (!processor_.distribution(row(ready), p_[at(ready)])) refuse_row();
        }
        return p_[at(i)];
      };
      const auto draft_row = [&](int i) -> const Distribution& { return q_[at(i)]; };
      verdict = rule_.verify(std::span<const Token>{drafted_}, target_row, draft_row, coin);
    }
    for (; pushed > 0; --pushed) processor_.pop();
    return verdict;
  }

  void take_valid(int most, Stats& stats) {
    const std::string wrong = cut_draft(drafted_, most, target_.info().vocab, ends_);
    if (!wrong.empty()) fault(stats, wrong);
  }

  [[noreturn]] void refuse_row() const {
    throw Error("decode.non-finite-logits",
                text("the logits of ", target_.info().name, " after ", processor_.history().size(),
                     " tokens hold NaN or infinity, or leave no token possible"),
                "Check the target's weights, and that adjust_logits leaves at least one token");
  }

  /// Commits and hands over the accepted tokens and the one after them, up to the first that ends generation.
  template <class Sink>
  bool emit(const Sampling& sampling, Sink& sink, const Verdict& verdict, Stats& stats) {
    const int m = static_cast<int>(drafted_.size());
    int i = 0;
    bool going = true;
    for (; going && i <= verdict.accepted; ++i) {
      const bool accepted = i < verdict.accepted;
      const Token token = accepted ? drafted_[at(i)] : verdict.token;
      GeneratedToken emitted{token, 0, static_cast<std::int64_t>(processor_.history().size()), accepted, {}};
      if constexpr (GeneratedTokenSink<Sink>) {
        LogprobReport& report = reports_[at(i)];
        if (!sampling.greedy()) report.by_distribution(p_[at(i)], token, sampling.top_logprobs);
        emitted.logprob = report.logprob();
        emitted.top = report.top();
      }
      processor_.push(token);
      ++stats.emitted;
      ++(accepted ? stats.accepted : verdict.accepted < m ? stats.corrections : stats.bonuses);
      if (accepted) ++stats.accepted_at_depth[at(i)];
      const bool wanted = deliver(sink, emitted);
      const auto reason = ended(sampling, token, wanted, stats);
      if (reason) stats.finish_reason = *reason;
      going = !reason;
    }
    stats.trimmed += verdict.accepted + 1 - i;
    ++stats.emitted_histogram[at(i)];
    return going;
  }

  std::optional<FinishReason> ended(const Sampling& sampling, Token token, bool wanted, const Stats& stats) const {
    if (ends_.is_end(token)) return FinishReason::end_token;
    if (ends_.is_stop(token)) return FinishReason::stop_token;
    if (!wanted) return FinishReason::sink;
    if (stats.emitted >= sampling.max_new_tokens) return FinishReason::length;
    if (processor_.history().size() >= at(target_.info().context)) return FinishReason::context;
    return std::nullopt;
  }

  /// Runs a step of the draft; if it throws, the rest of the request goes on without it.
  template <class Step>
  void guard(Stats& stats, Step&& step) {
    try {
      step();
    } catch (const std::exception& error) {
      fault(stats, text("the draft failed: ", error.what()));
    } catch (...) {
      fault(stats, "the draft failed with an unknown exception");
    }
  }

  void fault(Stats& stats, const std::string& reason) {
    ++stats.draft_faults;
    if (stats.disabled_reason.empty()) stats.disabled_reason = reason;
    draft_on_ = false;
  }

  DrafterType drafter_;
  Session<Target> target_;
  Speculation speculation_;
  draft_length::Policy policy_;
  Rule rule_;
  Processor processor_;
  EndTokens ends_;
  bool draft_on_ = true;
  std::vector<Token> drafted_;          // [m]
  std::vector<Token> verify_;           // [m + 1]: the anchor, then drafted_
  std::vector<Distribution> p_;         // [m + 1]
  std::vector<Distribution> q_;         // [m], or one to work in when the rule needs none
  std::vector<LogprobReport> reports_;  // [m + 1]
};

}  // namespace slm
