// Losslessness of constrained decoding by chi-square: the joint distribution of K + 2 tokens under the ratio test and
// block verification is the target's with forbidden tokens at minus infinity before temperature and cuts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/forced_text.hpp"
#include "support/lossless.hpp"
#include "support/toy_constraints.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The permitted tokens depend on the last ones; no text ends within the tests.
const Grammar grammar = Grammar::regex("(ab|b[ac]|ca?b|aac){40,}");

/// Tokens by text; the last one of a vocabulary of 8 is special.
std::vector<std::string> pieces_of(int vocab) {
  const std::vector<std::string> all{"a", "b", "c", "aa", "ab", "ca", "bb", ""};
  return {all.begin(), all.begin() + vocab};
}

struct Case {
  Setting setting;
  Sampling sampling;
  std::vector<double> law;
  Request request;

  Case(const Setting& of, Sampling with) : setting(of), sampling(std::move(with)) {
    const auto pieces = pieces_of(setting.vocab);
    const TriedConstraint tried(grammar, pieces, -1);
    sampling.max_new_tokens = setting.draft_length + 2;
    law = exact_law(target(), sampling, sampling.max_new_tokens,
                    [&](std::span<const Token> output, Token next) { return tried.permits(output, next); });
    request = {.prompt = opening, .sampling = sampling, .constraint = constrain(grammar, TokenTrie(pieces))};
  }

  ToyModel target() const { return ToyModel{target_options(setting.vocab)}; }
  ToyModel draft() const { return ToyModel{draft_options(setting.vocab)}; }
};

template <class Rule>
void check_constrained() {
  for (const Setting& setting : toy_settings) {
    for (int number = 0; number < 2; ++number) {
      const Case one(setting, sampling_number(number));
      const Fit found = fit_to<Rule>(one.law, one.draft(), one.target(), setting, one.request);
      CAPTURE(Rule::name, setting.draft_length, number, found.p, found.out_of_support);
      REQUIRE_FALSE(found.rejects());
    }
  }
  const Case one(toy_settings[1], sampling_number(1));
  const Drafter sources{ForcedText{}, one.draft()};
  REQUIRE_FALSE(fit_to<Rule>(one.law, sources, one.target(), one.setting, one.request).rejects());
}

/// Keeps the state of discarded tokens.
struct NotRolledBack : Unchanged {
  void truncate(ConstraintState&, std::size_t) {}
};

template <class Rule>
bool rejects(const Case& one, const Request& request) {
  try {
    return fit_to<Rule>(one.law, one.draft(), one.target(), one.setting, request).rejects();
  } catch (const Error&) {
    return true;
  }
}

template <class Rule>
void check_wrong_variants() {
  const Case one(toy_settings[1], {.temperature = 1.0f, .top_k = 3});
  REQUIRE_FALSE(rejects<Rule>(one, one.request));
  Request after_top_k = one.request;  // top-k keeps the likeliest tokens of all
  after_top_k.sampling.adjust_logits = [](std::span<const Token>, std::span<float> logits) {
    std::vector<float> sorted(logits.begin(), logits.end());
    std::nth_element(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater{});
    for (float& logit : logits) logit = logit < sorted[2] ? -1000 : logit;
  };
  CHECK(rejects<Rule>(one, after_top_k));
  Request not_rolled_back = one.request;
  not_rolled_back.constraint = std::make_shared<ChangedConstraint<NotRolledBack>>(one.request.constraint);
  CHECK(rejects<Rule>(one, not_rolled_back));
}

}  // namespace

TEST_CASE("constrained: the ratio test follows the target's masked distribution") { check_constrained<rule::Ratio>(); }
TEST_CASE("constrained: block verification follows the target's masked distribution") {
  check_constrained<rule::Block>();
}

TEST_CASE("constrained: the tests of distributions find a mask after top-k and a state that is not rolled back") {
  check_wrong_variants<rule::Ratio>();
  check_wrong_variants<rule::Block>();
}
