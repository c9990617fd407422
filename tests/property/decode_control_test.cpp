// The adaptive draft length on simulated rounds: it never costs more than 2 % of plain decoding, and comes close to the
// best fixed length where drafting pays.
#include "slm/decode/draft_control.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "support/draft_simulation.hpp"
#include "support/in_turn.hpp"

using namespace slm::draft_length;
using namespace slm::testing;

TEST_CASE(
    "adaptive drafting is never more than 2 % slower than plain decoding, whatever the acceptance and the costs") {
  for (const int texts : {1, 4, 16}) {
    for (const double slope : {0.03, 0.12, 0.3, 1.0}) {
      for (const double draft : {0.05, 0.2, 0.42, 1.0}) {
        for (const double acceptance : in_turn({0.0, 0.2, 0.4, 0.6, 0.8, 0.95})) {
          for (const auto& noise : {little_noise, bursts}) {
            World world;
            world.texts = texts;
            world.verify = [=](int rows, int) { return 1 + slope * (rows - 1) / std::sqrt(texts); };
            world.draft = [=](int, int) { return draft; };
            world.acceptance = [=](int, int) { return acceptance; };
            world.noise = noise;
            const Result result = Simulation(world).run(2000);
            CAPTURE(texts, slope, draft, acceptance, noise == bursts, result.cost(), result.drafting);
            CHECK(result.cost() <= 1.02);
            if (texts == 1 && noise == little_noise) {
              const double best = best_fixed(world, 2000);
              CAPTURE(best);
              CHECK(result.speedup() >= std::min(0.9 * best, best - 0.02));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("acceptance that flips costs at most 2 %, and the gain of the good stretches is found again") {
  for (const int texts : {1, 4, 16}) {
    for (const int period : {7, 30, 100, 500}) {
      World world;
      world.texts = texts;
      world.acceptance = [=](int, int round) { return round / period % 2 == 0 ? 0.9 : 0.0; };
      world.noise = little_noise;
      const Result result = Simulation(world).run(4000);
      CAPTURE(texts, period, result.cost(), result.drafting);
      CHECK(result.cost() <= 1.02);
      if (period >= 100 && texts == 1) CHECK(result.speedup() > 1.15);
    }
  }
}

TEST_CASE("an adversary who rejects whatever is drafted after good rounds gains little") {
  World world;
  int calls = 0;
  world.acceptance = [&](int, int) { return ++calls % 40 < 20 ? 1.0 : 0.0; };
  CHECK(Simulation(world).run(4000).cost() <= 1.02);
}

TEST_CASE("costs that jump are noticed in both directions") {
  for (const int texts : {1, 4, 16}) {
    World dearer;
    dearer.texts = texts;
    dearer.verify = [](int rows, int round) { return 1 + (round < 1000 ? 0.05 : 1.0) * (rows - 1); };
    const Result worse = Simulation(dearer).run(4000);
    CAPTURE(texts, worse.cost());
    CHECK(worse.cost() <= 1.02);
    World cheaper;
    cheaper.verify = [](int rows, int round) { return 1 + (round < 1000 ? 1.0 : 0.05) * (rows - 1); };
    Simulation simulation(cheaper);
    CHECK(simulation.run(1000).cost() <= 1.02);
    simulation.run(2500);
    CHECK(simulation.run(500).speedup() > 1.5);
  }
}

TEST_CASE("a useless draft of a batch beside good ones is paused alone") {
  World world;
  world.texts = 16;
  world.verify = [](int rows, int) { return 1 + 0.02 * (rows - 1); };
  world.acceptance = [](int text, int) { return text < 8 ? 0.9 : 0.0; };
  Simulation simulation(world);
  simulation.run(300);
  CHECK(simulation.run(1000).speedup() > 1.15);
}

TEST_CASE("the draft model reads texts while that pays, and seldom otherwise") {
  const auto reads_of = [](double acceptance) {
    World world;
    world.draft = [](int, int) { return 0.3; };
    world.acceptance = [=](int, int) { return acceptance; };
    Simulation simulation(world);
    AcceptanceRecord record(12);
    record.begin();
    CHECK(simulation.control.reads(record, 12, 100, 128));  // the first text
    simulation.run(400);
    simulation.control.took_reading(100, 5.0);
    record.begin(simulation.control.others());
    int reads = 0;
    for (int text = 0; text < 40; ++text) {
      reads += simulation.control.reads(record, 12, 100, 128);
      simulation.run(100);
    }
    return reads;
  };
  CHECK(reads_of(0.9) == 40);
  const int useless = reads_of(0.0);
  CHECK(useless >= 1);
  CHECK(useless <= 5);  // 5 plain steps each: 0.5 % of 4400
}

TEST_CASE("a text is read only if its part of what the batch saves exceeds the cost of reading") {
  const auto reads_beside = [](int present) {
    World world;
    world.texts = present;
    world.verify = [](int rows, int) { return 1 + 0.01 * (rows - 1); };
    world.draft = [](int, int) { return 0.3; };
    world.acceptance = [](int, int) { return 0.9; };
    Simulation simulation(world);
    simulation.run(100);
    simulation.control.took_reading(100, 5.0);  // 5 plain steps
    AcceptanceRecord record(12);
    record.begin(simulation.control.others());
    int reads = 0;
    for (int text = 0; text < 40; ++text) reads += simulation.control.reads(record, 12, 100, 64);
    return reads;
  };
  CHECK(reads_beside(1) == 40);
  CHECK(reads_beside(16) <= 3);  // no more than the reading account allows
}

TEST_CASE("a slow first step over a prompt does not prevent drafting") {
  Simulation simulation({});
  simulation.control.begin_round({.texts = 0, .rows = 20}, 1);
  simulation.control.took_verification(20, 60.0, 0, 0);
  CHECK(simulation.run(300).speedup() > 1.5);
}

TEST_CASE("without a plain step nothing is drafted, and an empty account stops drafting") {
  DraftControl control;
  Attempts attempts;
  const std::vector<float> sure{0.99f, 0.98f, 0.97f};
  const auto chosen = [&] {
    std::vector<Decision> one{{.attempts = &attempts, .tokens = sure, .estimated = true, .model = {}}};
    control.begin_round({1, 1}, 1);
    control.choose(one);
    return one.front().length;
  };
  CHECK(chosen() == 0);
  control.took_verification(1, 1.0, 1, 0);
  CHECK(chosen() == 2);  // its cost is not known yet
  control.took_verification(3, 1.1, 3, 0);
  CHECK(chosen() == 3);
  control.took_verification(4, 1.2, 4, 0);
  CHECK(control.balance() > 2);
  for (int i = 0; i < 90 && control.balance() >= 0; ++i) {
    if (chosen() > 0)
      control.took_verification(4, 1.9, 1, 0);
    else
      control.took_verification(1, 1.0, 1, 0);
  }
  CHECK(control.balance() < 0);
  CHECK(chosen() == 0);
}
