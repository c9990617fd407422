// Random vocabularies and grammars, and plain constrained decoding by the definition: every token is tried.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/grammar.hpp"
#include "support/naive_decoding.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

struct ToyRandom {
  std::uint64_t seed;
  std::uint64_t salt = 0;
  std::uint64_t pick(std::uint64_t n) { return mix(seed * 977 + ++salt) % n; }
};

inline constexpr std::string_view toy_letters = "ab1\"{}[]:, ";

/// Single letters, random pieces, some of them twice, a special token, and an end token, the last one.
inline std::vector<std::string> toy_pieces(std::uint64_t seed) {
  ToyRandom random{seed};
  std::vector<std::string> pieces;
  for (const char letter : toy_letters) pieces.emplace_back(1, letter);
  for (const char* piece : {"{\"", "\":", "\", \"", "ab", "aa", "11", "[1", "b\"", "a\"", "true", "bab"}) {
    pieces.emplace_back(piece);
  }
  for (std::uint64_t i = random.pick(20); i > 0; --i) {
    std::string piece;
    for (std::uint64_t length = 1 + random.pick(4); length > 0; --length) {
      piece += toy_letters[random.pick(toy_letters.size())];
    }
    pieces.push_back(piece);
  }
  pieces.emplace_back();
  pieces.emplace_back();
  return pieces;
}

/// A regular expression over a, b and 1.
inline std::string random_pattern(ToyRandom& random, int depth = 3) {
  const auto inner = [&] { return random_pattern(random, depth - 1); };
  switch (depth == 0 ? random.pick(3) : random.pick(8)) {
    case 0: return std::string(1, toy_letters[random.pick(3)]);
    case 1: return std::string(1, toy_letters[random.pick(3)]) + toy_letters[random.pick(3)];
    case 2: return "[ab]";
    case 3: return "(" + inner() + "|" + inner() + ")";
    case 4: return "(" + inner() + "){0," + std::to_string(1 + random.pick(4)) + "}";
    case 5: return "(" + inner() + ")+";
    default: return inner() + inner();
  }
}

inline Grammar random_grammar(ToyRandom& random) {
  switch (random.pick(5)) {
    case 0: {
      std::vector<std::string> words;
      for (std::uint64_t i = 1 + random.pick(4); i > 0; --i) {
        std::string word;
        for (std::uint64_t length = 1 + random.pick(12); length > 0; --length) word += toy_letters[random.pick(4)];
        words.push_back(word);
      }
      return Grammar::choice(words);
    }
    case 1:
      return Grammar::json_schema(R"({"type": "object", "properties": {"a": {"type": "boolean"}, "ab": {"type": "array",
        "items": {"enum": [1, 11, "ab", "b"]}, "maxItems": 4}, "bab": {"const": "aabb11"}}, "required": ["ab"],
        "additionalProperties": false})");
    case 2: return Grammar::gbnf("root ::= \"a\" root \"b\" | \"[\" root \"]\" | \"1\" | \"aabb11\"");
    default: return Grammar::regex(random_pattern(random));
  }
}

/// The tokens that an answer may have, each tried by itself.
class TriedConstraint {
 public:
  TriedConstraint(Grammar grammar, std::vector<std::string> pieces, Token end)
      : grammar_(std::move(grammar)), pieces_(std::move(pieces)), end_(end) {}

  bool permits(std::span<const Token> output, Token next) const {
    const Constraint after = behind(output);
    if (next == end_) return after.may_end();
    const std::string& piece = pieces_[static_cast<std::size_t>(next)];
    Constraint fork = after;
    return !piece.empty() && fork.advance(piece) == piece.size();
  }
  bool is_complete(std::span<const Token> output) const { return behind(output).must_end(); }
  bool may_end(std::span<const Token> output) const { return behind(output).may_end(); }

 private:
  Constraint behind(std::span<const Token> output) const {
    Constraint constraint(grammar_);
    for (const Token token : output) {
      const std::string& piece = pieces_[static_cast<std::size_t>(token)];
      if (constraint.advance(piece) != piece.size()) throw std::logic_error("the text does not fit the grammar");
    }
    return constraint;
  }

  Grammar grammar_;
  std::vector<std::string> pieces_;
  Token end_;
};

/// Prompt and output of plain constrained decoding under the coupled rule.
inline std::vector<Token> naive_constrained_text(const ToyModel& model, const std::vector<Token>& prompt,
                                                 Sampling sampling, const TriedConstraint& constraint) {
  std::vector<Token> text = prompt;
  const auto output = [&] { return std::span<const Token>(text).subspan(prompt.size()); };
  const auto plain_edits = sampling.adjust_logits;
  sampling.adjust_logits = [&](std::span<const Token> prefix, std::span<float> logits) {
    if (plain_edits) plain_edits(prefix, logits);
    for (std::size_t id = 0; id < logits.size(); ++id) {
      if (!constraint.permits(output(), static_cast<Token>(id))) logits[id] = -std::numeric_limits<float>::infinity();
    }
  };
  while (text.size() < prompt.size() + static_cast<std::size_t>(sampling.max_new_tokens) &&
         text.size() < static_cast<std::size_t>(model.info().context) && !constraint.is_complete(output())) {
    const auto p = naive_distribution(model.logits_after(text), sampling, prompt, output());
    text.push_back(naive_gumbel(p, sampling.seed, text.size()));
    if (text.back() == model.info().end_tokens.front()) break;
  }
  return text;
}

/// A constraint whose state a test changes: Change has the functions advance, truncate and mask.
template <class Change>
class ChangedConstraint final : public OutputConstraint {
 public:
  explicit ChangedConstraint(ConstraintRef of) : of_(std::move(of)) {}
  std::unique_ptr<ConstraintState> begin() const override { return std::make_unique<State>(of_->begin()); }
  std::size_t vocab() const override { return of_->vocab(); }
  bool has_text(Token token) const override { return of_->has_text(token); }

 private:
  struct State final : ConstraintState {
    explicit State(std::unique_ptr<ConstraintState> state) : inner(std::move(state)) {}
    bool advance(Token token) override { return change.advance(*inner, token); }
    void truncate(std::size_t tokens) override { change.truncate(*inner, tokens); }
    bool may_end() const override { return inner->may_end(); }
    bool must_end() const override { return inner->must_end(); }
    void mask(std::span<std::uint64_t> bits) const override { change.mask(*inner, bits); }
    void forced(std::size_t most, std::vector<Token>& out) const override { inner->forced(most, out); }

    std::unique_ptr<ConstraintState> inner;
    Change change;
  };

  ConstraintRef of_;
};

struct Unchanged {
  bool advance(ConstraintState& state, Token token) { return state.advance(token); }
  void truncate(ConstraintState& state, std::size_t tokens) { state.truncate(tokens); }
  void mask(const ConstraintState& state, std::span<std::uint64_t> bits) const { state.mask(bits); }
};

}  // namespace slm::testing
