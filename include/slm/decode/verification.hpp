// Verification: the target's part of a request's rounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/active_request.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/decode/prompt_rows.hpp"
#include "slm/decode/random.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/sink.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

template <VerificationRule Rule>
class Verification {
 public:
  /// sequence: of the target. The active request must outlive this.
  Verification(Sequence sequence, ActiveRequest& active, Rule rule)
      : sequence_(std::move(sequence)), active_(active), rule_(std::move(rule)) {}

  const Sequence& sequence() const { return sequence_; }
  std::size_t length() const { return static_cast<std::size_t>(sequence_.length()); }

  /// Sets the adapter; the text is recomputed from its beginning if it changes.
  void adapt(const AdapterRef& adapter) {
    if (sequence_.adapter() == adapter) return;
    sequence_.truncate(0);
    sequence_.adapt(adapter);
  }

  /// Starts the active request. most: maximum draft length per round. Keeps the common prefix with the cached text.
  void start(int most) {
    const Request& request = active_.request;
    adapt(request.adapter);
    if (sequence_.tenant() != request.tenant) {
      sequence_.truncate(0);
      sequence_.join(request.tenant);
    }
    const std::span<const Token> held = sequence_.tokens(), prompt = active_.request.prompt;
    prompt_rows_.start(active_.request);
    const std::size_t most_common = std::min({held.size(), prompt.size() - 1, prompt_rows_.next()});
    std::size_t common = 0;
    while (common < most_common && held[common] == prompt[common]) ++common;
    sequence_.truncate(static_cast<int>(common));
    const auto rows = static_cast<std::size_t>(most) + 1;
    tokens_.reserve(rows);
    masks_.reserve(rows);
    p_.resize(rows);
    const int alternatives = active_.request.logprobs.top;
    raw_.reserve(alternatives);
    sampled_.reserve(alternatives);
    if (active_.sampling().greedy()) return;
    const std::size_t support = active_.processor.support(active_.vocab());
    for (Distribution& row : p_) row.reserve(support);
    rule_.reserve(support, most);
  }

  /// Tokens to read before the last one; an embedding includes the last one.
  std::size_t left_to_read() const {
    const std::size_t to_read = active_.history().size() - (active_.request.pooling ? 0 : 1);
    return length() < to_read ? to_read - length() : 0;
  }
  /// Reuses pages of other sequences for them, except rows with results.
  void adopt() {
    const std::size_t end = length() + left_to_read();
    const std::size_t most = prompt_rows_.left() ? std::min(prompt_rows_.next(), end) : end;
    if (most > length()) sequence_.adopt(active_.history().subspan(length(), most - length()));
  }
  /// Adds the first `most` of them to a batch of the target.
  void read(Batch& batch, std::size_t most) {
    const auto tokens = active_.history().subspan(length(), std::min(most, left_to_read()));
    item_ = batch.add(sequence_, tokens, prompt_rows_.spec(length() + tokens.size()));
  }
  /// Takes the results of prompt rows. Throws decode.non-finite-logits.
  void take_read(const Batch& batch) { prompt_rows_.take(batch, item_, length(), active_.target); }
  /// Whether prompt rows need results.
  bool asks_of_prompt() const { return prompt_rows_.left(); }

  /// The draw if models may choose tokens themselves, by the constraint's masks if there is one; nothing if logits or
  /// distributions are needed here.
  std::optional<Draw> draw_for_models() const {
    if constexpr (!std::is_same_v<Rule, rule::Coupled>) {
      if (!active_.sampling().greedy()) return std::nullopt;
    }
    return active_.processor.draw();
  }

  /// Adds the anchor and the draft to a batch of the target.
  void plan(Batch& batch, std::span<const Token> drafted) {
    tokens_.assign(1, active_.history().back());
    tokens_.insert(tokens_.end(), drafted.begin(), drafted.end());
    const std::optional<Draw> draw = draw_for_models();
    chosen_by_model_ = draw && active_.target.chooses && !active_.request.logprobs.any();
    ResultSpec spec{.result = RowResult::logits, .rows = static_cast<int>(tokens_.size())};
    if (chosen_by_model_) spec.result = RowResult::choice, spec.draw = *draw;
    const bool masked = chosen_by_model_ && active_.processor.constraint().on();
    masks_.assign(tokens_.size(), {});
    if (masked) spec.masks = masks_;
    item_ = batch.add(sequence_, tokens_, spec);
  }

  /// Computes the masks of the rows. pushed: the processor holds the draft, and continues to.
  void prepare_masks(bool pushed) {
    Processor& processor = active_.processor;
    const auto pop_draft = [&] {
      for (std::size_t i = 1; i < tokens_.size(); ++i) processor.pop();
    };
    if (pushed) pop_draft();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (i > 0) processor.push(tokens_[i]);
      masks_[i] = processor.constraint().mask();
    }
    if (!pushed) pop_draft();
  }

  /// Decides from the target's results. q(i): the distribution that drafted token i was drawn from. Throws
  /// decode.non-finite-logits.
  template <class Draft>
  Verdict take(const Batch& batch, Draft&& q) {
    const auto drafted = std::span<const Token>(tokens_).subspan(1);
    Processor& processor = active_.processor;
    int pushed = 0;  // rows are processed on the rule's request, each with its own prefix
    const auto advance = [&](int i) {
      for (; pushed < i; ++pushed) processor.push(drafted[static_cast<std::size_t>(pushed)]);
      if (processor.constraint().on()) processor.constraint().check();
    };
    Verdict verdict;
    if (!chosen_by_model_) rows_ = batch.logits(item_);
    if (chosen_by_model_) {
      const std::span<const Token> choices = batch.choices(item_);
      verdict = agreement(drafted, [&](int i) {
        advance(i);
        return usable(choices[static_cast<std::size_t>(i)]);
      });
    } else if (active_.sampling().greedy()) {
      verdict = agreement(drafted, [&](int i) {
        advance(i);
        return usable(processor.greedy(row(i)));
      });
    } else {
      const PhiloxRandom random{active_.sampling().seed, static_cast<std::uint64_t>(processor.history().size())};
      int ready = 0;
      const auto p = [&](int i) -> const Distribution& {
        for (; ready <= i; ++ready) {
          advance(ready);
          if (!processor.distribution(row(ready), p_[static_cast<std::size_t>(ready)])) usable(no_token);
        }
        return p_[static_cast<std::size_t>(i)];
      };
      verdict = rule_.verify(drafted, p, q, random);
    }
    for (; pushed > 0; --pushed) processor.pop();
    return verdict;
  }

  /// Adds the requested log-probabilities to the token of row i, which is not committed yet.
  void report(int i, GeneratedToken& generated) {
    const Logprobs& wanted = active_.request.logprobs;
    if (wanted.raw) {
      raw_.by_row(row(i), generated.token, wanted.top);
      generated.logprob = raw_.logprob();
      generated.top = raw_.top();
    }
    if (wanted.sampled) {
      if (active_.sampling().greedy()) {
        sampled_.by_row(active_.processor.edited(row(i)), generated.token, wanted.top);
      } else {
        sampled_.by_distribution(p_[static_cast<std::size_t>(i)], generated.token, wanted.top);
      }
      generated.sampled_logprob = sampled_.logprob();
      generated.sampled_top = sampled_.top();
    }
  }

  /// Discards all but the first `length` tokens.
  void rewind(int length) {
    if (sequence_.length() > length) sequence_.truncate(length);
  }
  /// Discards all tokens. Other sequences can reuse their positions.
  void forget() {
    sequence_.share_last_page();
    rewind(0);
  }

 private:
  std::span<const float> row(int i) const { return {rows_.row(i), active_.vocab()}; }

  Token usable(Token token) {
    if (token != no_token) return token;
    if (active_.processor.forbids_all(active_.vocab())) {
      throw no_permitted_token(active_.target, active_.processor.history().size());
    }
    throw non_finite_logits(active_.target, active_.history().size());
  }

  Sequence sequence_;
  ActiveRequest& active_;
  Rule rule_;
  bool chosen_by_model_ = false;
  int item_ = 0;                  // index in the target's batch
  View<const float, 2> rows_;     // [m + 1, vocab]
  std::vector<Token> tokens_;     // [m + 1]: the anchor, then the draft
  std::vector<TokenMask> masks_;  // [m + 1], if the target chooses tokens by masks
  std::vector<Distribution> p_;   // [m + 1]
  LogprobReport raw_, sampled_;
  PromptRows prompt_rows_;
};

}}}
