// Rounds of texts that a draft model drafts for, with true costs and acceptance: what the adaptive draft length gains.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "slm/decode/draft_control.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// True costs, in plain steps of one text, and true acceptance, by round.
struct World {
  std::function<double(int rows, int round)> verify = [](int rows, int) { return 1 + 0.1 * (rows - 1); };
  std::function<double(int texts, int round)> draft = [](int, int) { return 0.18; };
  std::function<double(int text, int round)> acceptance = [](int, int) { return 0.8; };
  /// Factor of each measured time, from a number in [0, 1).
  std::function<double(double)> noise = [](double) { return 1.0; };
  int texts = 1;
  int limit = 12;
};

struct Result {
  double tokens = 0, seconds = 0, plain = 0;  // plain: seconds of plain decoding for as many tokens
  int drafting = 0;                           // rounds
  double speedup() const { return plain / seconds; }
  double cost() const { return seconds / plain; }
};

/// Texts that decode in one batch by a draft model.
class Simulation {
 public:
  explicit Simulation(World of, std::uint64_t seed = 1)
      : world(std::move(of)), attempts_(at(world.texts)), offers_(at(world.texts)), state_(seed << 32 | 1) {
    records_.assign(at(world.texts), draft_length::AcceptanceRecord(world.limit));
    for (draft_length::AcceptanceRecord& record : records_) record.begin();
  }

  Result run(int rounds, int fixed = -1) {
    Result result;
    for (int i = 0; i < rounds; ++i, ++round_) step(fixed, result);
    return result;
  }

  /// New texts of about `tokens` tokens each.
  Result write(int tokens, int fixed = -1) {
    control.begin_round({}, world.texts);
    for (int i = 0; i < world.texts; ++i) {
      control.begin_text();
      records_[at(i)].begin(control.others());
      attempts_[at(i)] = {};
    }
    Result result;
    while (result.tokens < tokens * world.texts) step(fixed, result), ++round_;
    return result;
  }

  World world;
  draft_length::DraftControl control;

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  double random() { return static_cast<double>(mix(++state_) >> 11) * 0x1p-53; }

  void step(int fixed, Result& result) {
    const int texts = world.texts;
    control.begin_round({.texts = texts, .rows = texts}, texts);
    std::vector<draft_length::Decision> decisions;
    for (int i = 0; i < texts; ++i) {
      offers_[at(i)].clear();
      records_[at(i)].append_survival(offers_[at(i)], world.limit);
      decisions.push_back({.attempts = &attempts_[at(i)], .tokens = {}, .model = offers_[at(i)]});
    }
    control.choose(decisions);
    int rows = texts, steps = 0, drafting = 0, emitted = 0;
    std::vector<draft_length::RoundOutcome> outcomes;
    for (int i = 0; i < texts; ++i) {
      const int length = fixed >= 0 ? fixed : decisions[at(i)].length;
      int accepted = 0;
      while (accepted < length && random() < world.acceptance(i, round_)) ++accepted;
      outcomes.push_back({length, accepted});
      rows += length;
      steps = std::max(steps, length);
      drafting += length > 0;
      emitted += accepted + 1;
    }
    const double draft = steps * world.draft(std::max(drafting, 1), round_), verify = world.verify(rows, round_);
    const double drafted = draft * world.noise(random()), verified = verify * world.noise(random());
    if (steps > 0) control.took_draft(drafting, steps, drafted);
    for (int i = 0; i < texts; ++i) {
      if (attempts_[at(i)].probing > 0) records_[at(i)].doubt();
      records_[at(i)].observe(outcomes[at(i)]);
      control.observe(attempts_[at(i)], outcomes[at(i)], true);
    }
    control.took_verification(rows, verified, emitted, drafted);
    result.tokens += emitted;
    result.seconds += draft + verify;
    result.plain += world.verify(texts, round_) * emitted / texts;
    result.drafting += steps > 0;
  }

  std::vector<draft_length::Attempts> attempts_;
  std::vector<draft_length::AcceptanceRecord> records_;
  std::vector<std::vector<float>> offers_;
  int round_ = 0;
  std::uint64_t state_;
};

inline double best_fixed(const World& world, int rounds) {
  double best = 0;
  for (int k = 0; k <= world.limit; ++k) best = std::max(best, Simulation(world).run(rounds, k).speedup());
  return best;
}

/// Noise of an otherwise idle machine, and of one where one step in twenty takes three times as long.
inline double little_noise(double u) { return 0.9 + 0.2 * u; }
inline double bursts(double u) { return u < 0.05 ? 3 : 0.85 + 0.3 * u; }

}  // namespace slm::testing
