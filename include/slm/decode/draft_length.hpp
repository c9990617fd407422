// Draft length policies: how many tokens to draft per round. Decisions depend only on finished rounds and on tokens
// already drafted, so every verification rule stays lossless.
#pragma once

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "slm/core/error.hpp"
#include "slm/decode/acceptance.hpp"

namespace slm { inline namespace v0_1 { namespace draft_length {

/// A constant length.
struct Fixed {
  int tokens = 4;

  int most() const { return tokens; }
  int next() const { return tokens; }
  bool go_on(double) const { return true; }
  void restart() {}
  void observe(const RoundOutcome&) {}
};

/// The schedule of Hugging Face transformers 4.37, used in AMD's measurements: start at 5; plus 2 after a fully
/// accepted round, else minus 1.
struct Heuristic {
  int start = 5;
  int up = 2;
  int down = 1;
  int limit = 64;
  int current = 5;  // current length; each request resets it

  int most() const { return limit; }
  int next() const { return current; }
  bool go_on(double) const { return true; }
  void restart() { current = std::min(start, limit); }
  void observe(const RoundOutcome& round) {
    current = round.accepted == current ? std::min(current + up, limit) : std::max(1, current - down);
  }
};

/// Stops drafting after the first token whose draft probability is below `threshold`. drop: also discards that token.
/// Only rules that ignore the draft's distribution (coupled, match) stay lossless then.
struct Confidence {
  double threshold = 0.4;
  int limit = 20;
  bool drop = false;

  int most() const { return limit; }
  int next() const { return limit; }
  bool go_on(double confidence) const { return confidence >= threshold; }
  void restart() {}
  void observe(const RoundOutcome&) {}
};

/// The default: each round's length maximises measured tokens per second over all requests, and is 0 where plain steps
/// are faster (draft_control.hpp). A text then depends on measured times under rules with !may_drop.
struct Adaptive {
  int limit = 12;

  int most() const { return limit; }
  int next() const { return limit; }
  bool go_on(double) const { return true; }
  void restart() {}
  void observe(const RoundOutcome&) {}
};

/// One of the policies, selected at run time.
class Policy {
 public:
  template <class Choice>
  requires std::is_constructible_v<std::variant<Fixed, Heuristic, Confidence, Adaptive>, Choice> Policy(Choice choice)
      : choice_(std::move(choice)) {}  // NOLINT: implicit conversion is intended

  int most() const {
    return std::visit([](const auto& policy) { return policy.most(); }, choice_);
  }
  /// Maximum number of tokens to draft in this round; unused if adaptive.
  int next() const {
    return std::visit([](const auto& policy) { return policy.next(); }, choice_);
  }
  bool go_on(double confidence) const {
    return std::visit([confidence](const auto& policy) { return policy.go_on(confidence); }, choice_);
  }
  void restart() {
    std::visit([](auto& policy) { policy.restart(); }, choice_);
  }
  void observe(const RoundOutcome& round) {
    std::visit([&](auto& policy) { policy.observe(round); }, choice_);
  }

  bool adaptive() const { return std::holds_alternative<Adaptive>(choice_); }

  bool wants_confidence() const { return std::holds_alternative<Confidence>(choice_); }
  bool drops() const {
    const auto* confidence = std::get_if<Confidence>(&choice_);
    return confidence != nullptr && confidence->drop;
  }

 private:
  std::variant<Fixed, Heuristic, Confidence, Adaptive> choice_;
};

/// Parses a command-line value: "4", "heuristic", "confidence" or "adaptive".
inline Policy parse(std::string_view name) {
  if (name == "heuristic") return Heuristic{};
  if (name == "confidence") return Confidence{};
  if (name == "adaptive") return Adaptive{};
  const bool number = !name.empty() && name.size() <= 4 &&
                      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!number) {
    throw Error("decode.unknown-draft-length", text("expected a draft length, found '", name, "'"),
                "Use a number of tokens, or heuristic, confidence or adaptive");
  }
  return Fixed{std::stoi(std::string{name})};
}

}}}
