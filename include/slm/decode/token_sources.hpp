// TokenSources: the sources of one request that propose tokens without a draft model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/acceptance.hpp"
#include "slm/decode/active_request.hpp"
#include "slm/decode/draft_control.hpp"
#include "slm/decode/draft_faults.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/request.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class TokenSources {
 public:
  /// most: maximum draft length per round.
  void add(std::unique_ptr<Source> source, int most) {
    sources_.push_back({std::move(source), draft_length::AcceptanceRecord(most)});
  }
  bool empty() const { return sources_.empty(); }

  void start(const Request& request, int most) {
    for (One& one : sources_) {
      one.record.begin();
      one.proposed.reserve(static_cast<std::size_t>(most) + 1);
      one.survival.reserve(static_cast<std::size_t>(most) + 1);
      one.source->start(request);
    }
  }
  void rewind(int length) {
    for (One& one : sources_) one.source->rewind(length);
  }
  void finish(std::span<const Token> text, std::size_t prompt) {
    for (One& one : sources_) one.source->finish(text, prompt);
  }

  /// Asks all sources for at most `most` tokens, and selects the proposal with the most expected tokens.
  void ask(ActiveRequest& active, int most, DraftFaults& faults) {
    best_ = nullptr;
    float best = 0;
    for (One& one : sources_) {
      if (!faults.on() || most <= 0) return;
      const float sum = ask(one, active, most, faults);
      if (sum > best) best = sum, best_ = &one;
    }
  }
  /// The selected proposal; empty if there is none.
  std::span<const Token> proposed() const {
    return best_ != nullptr ? std::span<const Token>(best_->proposed) : std::span<const Token>{};
  }
  /// For each of its tokens, the probability that all up to it are accepted.
  std::span<const float> survival() const {
    return best_ != nullptr ? std::span<const float>(best_->survival) : std::span<const float>{};
  }
  /// Whether its source estimates the probabilities itself.
  bool estimated() const { return best_ != nullptr && best_->source->kind == Source::Kind::estimates; }
  /// Whether it is text that a constraint forces.
  bool forces() const { return best_ != nullptr && best_->source->forces; }
  /// The record of its source.
  draft_length::AcceptanceRecord& record() { return best_->record; }

 private:
  struct One {
    std::unique_ptr<Source> source;
    draft_length::AcceptanceRecord record;
    std::vector<Token> proposed = {};
    std::vector<float> survival = {};  // [proposed.size()]
  };

  /// Returns the expected number of accepted tokens. If the source fails, tokens proposed before remain valid.
  static float ask(One& one, ActiveRequest& active, int most, DraftFaults& faults) {
    one.proposed.clear();
    one.survival.clear();
    faults.guard([&] { one.source->propose(active.history(), most, one.proposed, one.survival); });
    const std::string wrong = cut_draft(one.proposed, most, active.target.vocab, active.ends);
    if (!wrong.empty()) faults.report(wrong);
    ConstraintTrack& constraint = active.processor.constraint();
    if (constraint.on()) one.proposed.resize(constraint.permitted(one.proposed));
    if (one.source->kind == Source::Kind::estimates) {
      one.survival.resize(one.proposed.size(), 0.5f);
      float survival = 1;
      for (float& chance : one.survival) chance = survival *= chance > 0 ? std::min(chance, 1.0f) : 0.0f;
    } else {
      one.survival.clear();
      one.record.append_survival(one.survival, static_cast<int>(one.proposed.size()));
    }
    float sum = 0;
    for (const float survival : one.survival) sum += survival;
    return sum;
  }

  std::vector<One> sources_;
  One* best_ = nullptr;
};

/// Decides a round of one request by acceptance alone, without measured times: at most `most` tokens.
inline void decide_alone(draft_length::Decision& decision, int most) {
  // Costs in plain steps: of one more row, and of a step of the draft model.
  constexpr float row = 0.125f, step = 0.2f;
  const auto value = [](std::span<const float> survival, int length, float cost) {
    float tokens = 1;
    for (const float one : survival.first(static_cast<std::size_t>(length))) tokens += one;
    return tokens / (1 + cost * static_cast<float>(length));
  };
  int length = std::min(most, static_cast<int>(decision.tokens.size()));
  if (decision.estimated) {  // as long as expected tokens per time increase
    int best = 0;
    while (best < length && value(decision.tokens, best + 1, row) > value(decision.tokens, best, row)) ++best;
    length = best;
  }
  const int by_model = std::min(most, static_cast<int>(decision.model.size()));
  decision.by_model = by_model > 0 && (length == 0 || value(decision.model, by_model, row + step) >
                                                          value(decision.tokens, length, row));
  decision.length = decision.by_model ? by_model : length;
}

}}}
