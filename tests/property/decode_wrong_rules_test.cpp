// The controls of decode_lossless_test: deliberately wrong verifiers, which its chi-square test must reject.
#include <catch2/catch.hpp>

#include "support/lossless.hpp"
#include "support/wrong_rules.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Whether one of the parameter sets rejects.
template <class Rule>
bool caught(const Setting& setting, const Speculation& speculation = {}) {
  for (int number = 0; number < 4; ++number) {
    if (fit_toys<Rule>(setting, sampling_number(number), speculation).rejects()) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the wrong verifiers are rejected") {
  const Setting one = toy_settings[0], two = toy_settings[1], four = toy_settings[2];
  SECTION("1 argmax draft under the ratio test") {
    for (const Setting& setting : toy_settings) REQUIRE(caught<ArgmaxDraft>(setting));
  }
  SECTION("2 dropping an unlikely token after drawing it") {
    for (const Setting& setting : toy_settings) {
      REQUIRE(
          caught<DroppingRatio>(setting, {.draft_length = draft_length::Confidence{0.45, setting.draft_length, true}}));
    }
  }
  SECTION("3 block verification with draws reused by position") {
    REQUIRE(caught<Reusing<rule::Block>>(two));
    REQUIRE(caught<Reusing<rule::Block>>(four));
  }
  SECTION("4 reused draws and a draft length that depends on discarded ones") {
    const auto found = fit<Reusing<rule::Ratio>>(FickleDrafter{ToyModel{draft_options(four.vocab)}},
                                                 ToyModel{target_options(four.vocab)}, four, sampling_number(1));
    CAPTURE(found.p);
    REQUIRE(found.rejects());
  }
  SECTION("5 q is not the distribution that was drawn from") {
    for (const Setting& setting : toy_settings) REQUIRE(caught<SharpenedDraft>(setting));
  }
  SECTION("6 the residual is p") {
    for (const Setting& setting : toy_settings) REQUIRE(caught<AlteredRatio<ResidualIsP>>(setting));
  }
  SECTION("7 the residual is subtracted by rank") {
    for (const Setting& setting : toy_settings) REQUIRE(caught<AlteredRatio<ResidualByRank>>(setting));
  }
  SECTION("8 a coarse uniform and a comparison that lets equality pass") {
    REQUIRE(caught<AlteredRatio<CoarseUniform>>(one));
    REQUIRE(caught<AlteredRatio<CoarseUniform>>(four));
  }
  SECTION("9 the bonus token comes from the previous row") {
    for (const Setting& setting : toy_settings) REQUIRE(caught<AlteredRatio<BonusFromPreviousRow>>(setting));
  }
  SECTION("their other parts are correct") { REQUIRE_FALSE(caught<AlteredRatio<RightParts>>(two)); }
}
