// The verification rules by exact enumeration: instead of drawing, every branch is taken with its probability.
#include "slm/decode/rules.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "slm/decode/random.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Replays a path of choices and extends it; `weight` is the probability of the whole path.
class EnumeratingRandom {
 public:
  double weight = 1;

  Token race(int, const Distribution& p) const { return pick(p); }
  Token keyed(int, const Distribution& p) const { return pick(p); }
  Token draft(int, const Distribution& q) const { return pick(q); }
  Token residual(int, const Distribution& weights) const { return pick(weights); }
  Token bonus(int, const Distribution& p) const { return pick(p); }
  bool accept(int, double q, double p) const {
    const double yes = q > p ? p / q : (p > 0 ? 1.0 : 0.0);
    return branch({yes, 1 - yes}) == 0;
  }

  /// Runs `once` for every path.
  static void all_paths(const std::function<void(EnumeratingRandom&)>& once) {
    EnumeratingRandom random;
    do {
      random.weight = 1;
      random.depth_ = 0;
      once(random);
    } while (random.next_path());
  }

 private:
  struct Choice {
    std::vector<std::size_t> options;  // those with a probability above 0
    std::size_t at = 0;
  };

  std::size_t branch(const std::vector<double>& probabilities) const {
    auto& self = const_cast<EnumeratingRandom&>(*this);
    if (depth_ == path_.size()) {
      Choice choice;
      for (std::size_t i = 0; i < probabilities.size(); ++i) {
        if (probabilities[i] > 0) choice.options.push_back(i);
      }
      self.path_.push_back(choice);
    }
    const Choice& choice = path_[self.depth_++];
    const std::size_t taken = choice.options[choice.at];
    self.weight *= probabilities[taken];
    return taken;
  }

  Token pick(const Distribution& weights) const {
    std::vector<double> normalised;
    for (std::size_t j = 0; j < weights.size(); ++j) normalised.push_back(weights.probability(j));
    return weights.ids[branch(normalised)];
  }

  bool next_path() {
    while (!path_.empty() && ++path_.back().at == path_.back().options.size()) path_.pop_back();
    return !path_.empty();
  }

  std::vector<Choice> path_;
  std::size_t depth_ = 0;
};

Distribution make(const std::vector<double>& weights) {
  Distribution result;
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0) result.add(static_cast<Token>(id), weights[id]);
  }
  return result;
}

/// A random language model over three tokens: a distribution for every prefix, some with zeros.
struct TinyLanguage {
  std::uint64_t seed;
  bool zeros;

  Distribution after(const std::vector<Token>& prefix) const {
    std::uint64_t state = mix(seed);
    for (const Token token : prefix) state = mix(state ^ static_cast<std::uint64_t>(token + 1));
    std::vector<double> weights;
    for (std::uint64_t v = 0; v < 3; ++v) {
      const double u = static_cast<double>(mix(state + v) >> 11) * 0x1p-53;
      weights.push_back(zeros && mix(state + 77 + v) % 3 == 0 ? 0.0 : u * u + 1e-3);
    }
    if (weights[0] + weights[1] + weights[2] == 0) weights[mix(state + 99) % 3] = 1;  // a point mass
    return make(weights);
  }
};

/// Every outcome of one round of `draft length` drafted tokens: visit(verdict, drafted tokens, random).
template <class Rule, class Visit>
void enumerate_rounds(const TinyLanguage& target, const TinyLanguage& draft, int draft_length, Visit&& visit) {
  EnumeratingRandom::all_paths([&](EnumeratingRandom& random) {
    Rule rule;
    std::vector<Token> x;
    std::vector<Distribution> q, p;
    for (int i = 0; i < draft_length; ++i) {
      q.push_back(draft.after(x));
      p.push_back(target.after(x));
      x.push_back(Rule::draft(random, i, q.back()));
    }
    p.push_back(target.after(x));
    const Verdict verdict = rule.verify(
        std::span<const Token>{x}, [&](int i) -> const Distribution& { return p.at(static_cast<std::size_t>(i)); },
        [&](int i) -> const Distribution& { return q.at(static_cast<std::size_t>(i)); }, random);
    visit(verdict, x, random);
  });
}

/// Total variation between the distribution of the first K + 1 tokens (missing ones are drawn from the target) and the
/// target's own.
template <class Rule>
double variation(const TinyLanguage& target, const TinyLanguage& draft, int draft_length) {
  std::map<std::vector<Token>, double> law;
  enumerate_rounds<Rule>(target, draft, draft_length,
                         [&](const Verdict& verdict, const auto& x, EnumeratingRandom& random) {
                           std::vector<Token> text(x.begin(), x.begin() + verdict.accepted);
                           text.push_back(verdict.token);
                           while (static_cast<int>(text.size()) <= draft_length)
                             text.push_back(random.bonus(0, target.after(text)));
                           law[text] += random.weight;
                         });
  double distance = 0;
  std::function<void(std::vector<Token>&, double)> compare = [&](std::vector<Token>& text, double probability) {
    if (static_cast<int>(text.size()) > draft_length) {
      distance += std::abs(probability - (law.count(text) ? law[text] : 0.0)) / 2;
      law.erase(text);
      return;
    }
    const Distribution next = target.after(text);
    for (Token v = 0; v < 3; ++v) {
      text.push_back(v);
      compare(text, probability * next.of(v));
      text.pop_back();
    }
  };
  std::vector<Token> text;
  compare(text, 1);
  return distance;
}

template <class Rule>
double expected_length(const TinyLanguage& target, const TinyLanguage& draft, int draft_length) {
  double length = 0;
  enumerate_rounds<Rule>(target, draft, draft_length,
                         [&](const Verdict& verdict, const auto&, EnumeratingRandom& random) {
                           length += random.weight * (verdict.accepted + 1);
                         });
  return length;
}

/// The ratio test with p instead of the residual after a rejection: must be detected.
struct WrongResidual : rule::Ratio {
  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&& q, const Random& random) {
    for (int i = 0; i < static_cast<int>(x.size()); ++i) {
      const Token token = x[static_cast<std::size_t>(i)];
      if (!random.accept(i, q(i).of(token), p(i).of(token))) return {i, random.residual(i, p(i)), i + 1};
    }
    const int m = static_cast<int>(x.size());
    return {m, random.bonus(m, p(m)), m};
  }
};

/// A random that always returns the same uniform number.
struct ConstantRandom {
  double u = 0;
  Token residual(int, const Distribution& weights) const { return draw_at(weights, u); }
  Token bonus(int, const Distribution& weights) const { return draw_at(weights, u); }
  bool accept(int, double q, double p) const { return passes(u, q, p); }
};

/// Trap 10: accepts when u <= p / q, so also when u and p are both 0.
struct LenientRandom : ConstantRandom {
  bool accept(int, double q, double p) const { return u <= p / q; }
};

template <class Rule, class Random>
Verdict judge(Rule rule, const std::vector<Token>& x, const std::vector<Distribution>& p,
              const std::vector<Distribution>& q, const Random& random) {
  return rule.verify(
      std::span<const Token>{x}, [&](int i) -> const Distribution& { return p.at(static_cast<std::size_t>(i)); },
      [&](int i) -> const Distribution& { return q.at(static_cast<std::size_t>(i)); }, random);
}

}  // namespace

TEST_CASE("exact enumeration: every rule emits exactly the target's distribution") {
  double worst = 0, worst_control = 1;
  for (std::uint64_t model = 0; model < 150; ++model) {
    const TinyLanguage target{2 * model + 1, model % 2 == 1};
    const TinyLanguage draft{2 * model + 2, model % 3 == 1};
    for (int draft_length = 1; draft_length <= 3; ++draft_length) {
      CAPTURE(model, draft_length);
      for (const double distance :
           {variation<rule::Ratio>(target, draft, draft_length), variation<rule::Block>(target, draft, draft_length),
            variation<rule::Match>(target, draft, draft_length),
            variation<rule::Coupled>(target, draft, draft_length)}) {
        REQUIRE(distance <= 1e-12);
        worst = std::max(worst, distance);
      }
      if (model % 6 == 0 && draft_length == 1) {  // no zeros: certainly wrong
        worst_control = std::min(worst_control, variation<WrongResidual>(target, draft, 1));
      }
    }
  }
  INFO("largest total variation " << worst << ", smallest of the wrong rule " << worst_control);
  REQUIRE(worst_control > 1e-4);
}

TEST_CASE("block verification never emits fewer tokens than the ratio test") {
  double ratio_sum = 0, block_sum = 0;
  for (std::uint64_t model = 0; model < 150; ++model) {
    const TinyLanguage target{2 * model + 1, model % 2 == 1};
    const TinyLanguage draft{2 * model + 2, model % 3 == 1};
    for (int draft_length = 1; draft_length <= 3; ++draft_length) {
      const double ratio = expected_length<rule::Ratio>(target, draft, draft_length);
      const double block = expected_length<rule::Block>(target, draft, draft_length);
      CAPTURE(model, draft_length, ratio, block);
      REQUIRE(block >= ratio - 1e-12);
      ratio_sum += ratio;
      block_sum += block;
    }
  }
  REQUIRE(block_sum > 1.005 * ratio_sum);
}

TEST_CASE("a token that the target excludes is rejected even by u = 0, and q = 0 is not a divisor") {
  const auto p = make({0.5, 0.5, 0});
  const auto q = make({0, 0.1, 0.9});
  for (const double u : {0.0, 1e-300, 0.5}) {
    const auto ratio = judge(rule::Ratio{}, {2}, {p, p}, {q}, ConstantRandom{u});
    REQUIRE(ratio.accepted == 0);
    REQUIRE(ratio.token == 0);  // the residual is max(0, p - q): token 0 first, then 1
    REQUIRE(judge(rule::Block{}, {2}, {p, p}, {q}, ConstantRandom{u}).accepted == 0);
  }
  // Control, trap 10: a lenient comparison accepts the impossible token at u = 0.
  REQUIRE(judge(rule::Ratio{}, {2}, {p, p}, {q}, LenientRandom{{0.0}}).accepted == 1);
}

TEST_CASE("equal, one-hot and denormal distributions") {
  const auto p = make({0.2, 0.3, 0.5});
  const auto one_hot = make({0, 1, 0});
  const double last = 1 - 0x1p-53;
  SECTION("p == q is always accepted") {
    for (const Token x : {0, 1, 2}) {
      REQUIRE(judge(rule::Ratio{}, {x}, {p, p}, {p}, ConstantRandom{last}).accepted == 1);
      REQUIRE(judge(rule::Block{}, {x, x}, {p, p, p}, {p, p}, ConstantRandom{last}).accepted == 2);
    }
  }
  SECTION("a one-hot p accepts only its token") {
    REQUIRE(judge(rule::Ratio{}, {1}, {one_hot, p}, {p}, ConstantRandom{last}).accepted == 1);
    const auto other = judge(rule::Ratio{}, {2}, {one_hot, p}, {p}, ConstantRandom{0.0});
    REQUIRE(other.accepted == 0);
    REQUIRE(other.token == 1);
  }
  SECTION("a one-hot q is accepted with probability p(x), and the residual excludes x") {
    REQUIRE(judge(rule::Ratio{}, {1}, {p, p}, {one_hot}, ConstantRandom{0.29}).accepted == 1);
    const auto rejected = judge(rule::Ratio{}, {1}, {p, p}, {one_hot}, ConstantRandom{0.31});
    REQUIRE(rejected.accepted == 0);
    REQUIRE(rejected.token == 2);  // 0.31 of a total of 0.7 is beyond the 0.2 of token 0
  }
  SECTION("denormal probabilities") {
    Distribution tiny;
    tiny.add(0, 1.0);
    tiny.add(1, 5e-324);
    REQUIRE(judge(rule::Ratio{}, {1}, {tiny, p}, {tiny}, ConstantRandom{last}).accepted == 1);
    REQUIRE(judge(rule::Block{}, {1}, {tiny, p}, {tiny}, ConstantRandom{last}).accepted == 1);
    const auto rejected = judge(rule::Ratio{}, {1}, {tiny, p}, {p}, ConstantRandom{0.5});
    REQUIRE(rejected.accepted == 0);
    REQUIRE(rejected.token == 0);
  }
  SECTION("a residual that is empty because of rounding falls back to p") {
    Distribution low = p;  // p - q is nowhere above 0
    for (double& value : low.weights) value = std::nextafter(value, 1.0);
    struct Refusing : ConstantRandom {
      bool accept(int, double, double) const { return false; }
    };
    REQUIRE(judge(rule::Ratio{}, {0}, {p, p}, {low}, Refusing{{0.6}}).token == 2);
    REQUIRE(judge(rule::Block{}, {0}, {p, p}, {low}, Refusing{{0.6}}).token <= 2);
  }
}

TEST_CASE("a drafted token that its own distribution excludes counts as a prediction without probability") {
  const auto p = make({0.2, 0.3, 0.5});
  const auto q = make({0, 0.5, 0.5});
  REQUIRE(judge(rule::Ratio{}, {0}, {p, p}, {q}, ConstantRandom{0.19}).accepted == 1);
  const auto rejected = judge(rule::Ratio{}, {0}, {p, p}, {q}, ConstantRandom{0.21});
  REQUIRE(rejected.accepted == 0);
  REQUIRE(rejected.token == 1);  // p without token 0
  REQUIRE(judge(rule::Block{}, {0}, {p, p}, {q}, ConstantRandom{0.0}).accepted == 0);
}

TEST_CASE("rules are selected by name at run time") {
  for (const std::string name : {"coupled", "ratio", "block", "match"}) {
    REQUIRE(visit_rule(name, [](auto rule) { return std::string{rule.name}; }) == name);
  }
  REQUIRE_THROWS_WITH(visit_rule("typical", [](auto) {}), Catch::Contains("decode.unknown-rule"));
}

TEST_CASE("the race draws with the correct probabilities, and one call serves two tokens") {
  const auto p = make({0.05, 0.45, 0, 0.3, 0.2});
  std::vector<int> count(5);
  const int draws = 200000;
  for (int i = 0; i < draws; ++i) ++count[static_cast<std::size_t>(PhiloxRandom{11, 0}.race(i, p))];
  for (Token v = 0; v < 5; ++v) {
    const double expected = p.of(v) * draws;
    REQUIRE(std::abs(count[static_cast<std::size_t>(v)] - expected) <= 5 * std::sqrt(expected + 1));
  }
}
