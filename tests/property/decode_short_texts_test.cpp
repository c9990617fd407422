// The adaptive draft length on simulated short texts: what it gains before it has learnt much.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>

#include "slm/decode/draft_control.hpp"
#include "support/draft_simulation.hpp"

using namespace slm::testing;

namespace {

/// A pair of models. slow_start: how much longer the first step of the draft and the first one with drafts take.
World pair_of(double draft, double row, double acceptance, double (*noise)(double), double slow_start = 1) {
  World world;
  world.verify = [=, first = true](int rows, int) mutable {
    const double slow = rows > 1 && std::exchange(first, rows == 1) ? slow_start : 1;
    return slow * (1 + row * (rows - 1));
  };
  world.draft = [=, first = true](int, int) mutable { return draft * (std::exchange(first, false) ? slow_start : 1); };
  world.acceptance = [=](int, int) { return acceptance; };
  world.noise = noise;
  return world;
}

struct Gain {
  double best = 0;   // speedup of the best fixed length
  double first = 0;  // of the first text of a process
  double later = 0;  // of the fourth and fifth
};

/// Averages of many runs.
Gain gain_of(const World& world, int tokens) {
  constexpr int runs = 48;
  Gain gain;
  const auto speedup = [](const Result& sum) { return sum.plain / sum.seconds; };
  const auto add = [](Result& sum, const Result& one) { sum.plain += one.plain, sum.seconds += one.seconds; };
  for (int k = 0; k <= world.limit; ++k) {
    Result sum;
    for (int run = 1; run <= runs; ++run) add(sum, Simulation(world, static_cast<std::uint64_t>(run)).write(tokens, k));
    gain.best = std::max(gain.best, speedup(sum));
  }
  Result first, later;
  for (int run = 1; run <= runs; ++run) {
    Simulation simulation(world, static_cast<std::uint64_t>(run));
    add(first, simulation.write(tokens));
    for (int text = 1; text < 3; ++text) simulation.write(tokens);
    for (int text = 3; text < 5; ++text) add(later, simulation.write(tokens));
  }
  gain.first = speedup(first);
  gain.later = speedup(later);
  return gain;
}

}  // namespace

TEST_CASE("short texts have nine tenths of the speed of the best fixed length, from the first one on") {
  for (const int tokens : {64, 96, 128}) {
    for (const double draft : {0.1, 0.2, 0.3}) {
      for (const double row : {0.05, 0.12, 0.2}) {
        for (const double acceptance : {0.6, 0.8, 0.93}) {
          const Gain gain = gain_of(pair_of(draft, row, acceptance, little_noise), tokens);
          CAPTURE(tokens, draft, row, acceptance, gain.best, gain.first, gain.later);
          CHECK(gain.first >= 0.89 * gain.best);
          CHECK(gain.later >= 0.9 * gain.best);
        }
      }
    }
  }
}

TEST_CASE("a slow start and steps that are now and then delayed cost short texts little of their gain") {
  for (const double slow_start : {1.0, 2.5}) {
    for (const double draft : {0.1, 0.2, 0.35}) {
      for (const double row : {0.05, 0.12}) {
        for (const double acceptance : {0.8, 0.93}) {
          const Gain gain = gain_of(pair_of(draft, row, acceptance, bursts, slow_start), 96);
          CAPTURE(slow_start, draft, row, acceptance, gain.best, gain.first, gain.later);
          CHECK(gain.first >= 0.86 * gain.best);
          CHECK(gain.later >= 0.86 * gain.best);
        }
      }
    }
  }
}

TEST_CASE("a useless draft costs the first text of a process a few plain steps, and later ones 2 %") {
  for (const double draft : {0.05, 0.2, 0.42, 1.0}) {
    for (const double row : {0.05, 0.3}) {
      Simulation simulation(pair_of(draft, row, 0, little_noise));
      const Result first = simulation.write(96);
      CAPTURE(draft, row);
      CHECK(first.seconds <= first.plain + 5.5);
      Result later;
      for (int text = 0; text < 20; ++text) {
        const Result one = simulation.write(96);
        later.seconds += one.seconds, later.plain += one.plain;
      }
      CHECK(later.cost() <= 1.02);
    }
  }
}
