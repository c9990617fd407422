// Losslessness by chi-square: the joint distribution of K + 2 generated tokens is the target's, with the real decoder.
// About 60 tests of 60000 texts each; about half a minute.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "support/lossless.hpp"
#include "support/wrong_rules.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

template <class Rule>
void check_lossless(const std::function<Speculation(int)>& speculation_of = {}) {
  double lowest = 1;
  for (const Setting& setting : toy_settings) {
    for (int number = 0; number < 4; ++number) {
      const auto speculation = speculation_of ? speculation_of(setting.draft_length) : Speculation{};
      const Fit found = fit_toys<Rule>(setting, sampling_number(number), speculation);
      CAPTURE(Rule::name, setting.draft_length, number, found.p, found.out_of_support);
      REQUIRE_FALSE(found.rejects());
      lowest = std::min(lowest, found.p);
    }
  }
  REQUIRE(lowest > 1e-5);
}

}  // namespace

TEST_CASE("the ratio test follows the target's distribution") { check_lossless<rule::Ratio>(); }
TEST_CASE("block verification follows the target's distribution") { check_lossless<rule::Block>(); }
TEST_CASE("the coupled rule follows the target's distribution") { check_lossless<rule::Coupled>(); }
TEST_CASE("sample-match follows the target's distribution") { check_lossless<rule::Match>(); }

TEST_CASE("stopping after an unlikely token keeps the ratio test and block verification lossless") {
  for (const Setting& setting : {toy_settings[1], toy_settings[2]}) {
    const Speculation stop{.draft_length = draft_length::Confidence{0.45, setting.draft_length}};
    REQUIRE_FALSE(fit_toys<rule::Ratio>(setting, sampling_number(1), stop).rejects());
    REQUIRE_FALSE(fit_toys<rule::Block>(setting, sampling_number(1), stop).rejects());
  }
}

TEST_CASE("dropping an unlikely token keeps sample-match and the coupled rule lossless") {
  for (const Setting& setting : {toy_settings[0], toy_settings[2]}) {
    const Speculation drop{.draft_length = draft_length::Confidence{0.45, setting.draft_length, true}};
    REQUIRE_FALSE(fit_toys<rule::Match>(setting, sampling_number(1), drop).rejects());
    REQUIRE_FALSE(fit_toys<rule::Coupled>(setting, sampling_number(1), drop).rejects());
  }
}

TEST_CASE("a draft length that depends on discarded tokens is lossless with fresh draws") {
  for (const Setting& setting : {toy_settings[1], toy_settings[2]}) {
    const auto draft = [&] { return FickleDrafter{ToyModel{draft_options(setting.vocab)}}; };
    const auto target = [&] { return ToyModel{target_options(setting.vocab)}; };
    REQUIRE_FALSE(fit<rule::Ratio>(draft(), target(), setting, sampling_number(1)).rejects());
    REQUIRE_FALSE(fit<rule::Block>(draft(), target(), setting, sampling_number(1)).rejects());
  }
  const Speculation heuristic{.draft_length = draft_length::Heuristic{.start = 2, .limit = 4}};
  REQUIRE_FALSE(fit_toys<rule::Block>(toy_settings[2], sampling_number(1), heuristic).rejects());
}

TEST_CASE("tokens without a distribution, alone or beside a draft model, keep every rule lossless") {
  const auto guess = [](std::span<const Token> context, int most, std::vector<Token>& out) {
    for (int i = 0; i < most - static_cast<int>(context.size() % 2); ++i) out.push_back((context.back() + i) % 3);
  };
  for (const Setting& setting : {toy_settings[1], toy_settings[2]}) {
    const auto check = [&](auto rule) {
      using Rule = decltype(rule);
      const ToyModel model{draft_options(setting.vocab)}, target{target_options(setting.vocab)};
      CAPTURE(Rule::name, setting.draft_length);
      CHECK_FALSE(fit<Rule>(ScriptedDrafter{guess}, target, setting, sampling_number(1)).rejects());
      CHECK_FALSE(fit<Rule>(Drafter{ScriptedDrafter{guess}, model}, target, setting, sampling_number(1)).rejects());
      CHECK_FALSE(fit<Rule>(Drafter{Lookup{}, model}, target, setting, sampling_number(1)).rejects());
    };
    check(rule::Ratio{});
    check(rule::Block{});
    check(rule::Coupled{});
    check(rule::Match{});
  }
}

TEST_CASE("reusing draws by position does not harm the ratio test with a fixed draft length") {
  REQUIRE_FALSE(fit_toys<Reusing<rule::Ratio>>(toy_settings[2], sampling_number(1)).rejects());
}

TEST_CASE("total variation over a million texts", "[.nightly]") {
  for (const Setting& setting : toy_settings) {
    for (int number = 0; number < 4; ++number) {
      const auto check = [&](auto rule) {
        const Fit found =
            fit<decltype(rule)>(ToyModel{draft_options(setting.vocab)}, ToyModel{target_options(setting.vocab)},
                                setting, sampling_number(number), {}, 1000000);
        CAPTURE(rule.name, setting.draft_length, number, found.p, found.variation, found.noise);
        REQUIRE_FALSE(found.rejects());
        REQUIRE(found.variation <= 1.5 * found.noise);
      };
      check(rule::Ratio{});
      check(rule::Block{});
      check(rule::Coupled{});
      check(rule::Match{});
    }
  }
}

TEST_CASE("a target with more ids than the draft keeps its distribution, including those ids") {
  // 8 ids against the draft's 6: the last two are never drafted, and must have the target's frequency.
  const Setting setting{2, 8};
  auto draft = draft_options(6);
  const auto check = [&](auto rule) {
    const Fit found = fit<decltype(rule)>(ToyModel{draft}, ToyModel{target_options(8)}, setting, sampling_number(1));
    CAPTURE(rule.name, found.p);
    REQUIRE_FALSE(found.rejects());
  };
  check(rule::Ratio{});
  check(rule::Block{});
  check(rule::Coupled{});
  check(rule::Match{});
}

TEST_CASE("a draft with more ids than the target never proposes them") {
  const Setting setting{2, 6};
  const auto check = [&](auto rule) {
    const Fit found =
        fit<decltype(rule)>(ToyModel{draft_options(9)}, ToyModel{target_options(6)}, setting, sampling_number(1));
    CAPTURE(rule.name, found.p);
    REQUIRE_FALSE(found.rejects());
  };
  check(rule::Ratio{});
  check(rule::Block{});
}
