// Drafters propose the next tokens. This header has the concepts and NoDrafter; models are in model_drafter.hpp, prompt
// lookup in ngram_drafter.hpp.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/ngram_drafter.hpp"

namespace slm { inline namespace v0_1 {

/// A callback that samples the drafted token from a row of logits, with the target's sampling settings, and records its
/// distribution. Returns the token to read next, or nothing if the draft is long enough.
class ChooseNext {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, ChooseNext>) explicit ChooseNext(F& function)
      : object_(std::addressof(function)),
        call_([](void* object, std::span<const float> row) { return (*static_cast<F*>(object))(row); }) {}

  std::optional<Token> operator()(std::span<const float> row) const { return call_(object_, row); }

 private:
  void* object_;
  std::optional<Token> (*call_)(void*, std::span<const float>);
};

/// Operations of every drafter:
///  start(prompt)    begins a request
///  rewind(length)   discards state beyond `length` tokens, the text's length without its last token
template <class D>
concept DraftText = requires(D& drafter, std::span<const Token> prompt, int length) {
  { drafter.start(prompt) } -> std::same_as<void>;
  { drafter.rewind(length) } -> std::same_as<void>;
};

/// A drafter without probabilities. propose(context, most, out) appends at most `most` proposed successors of `context`
/// to `out`. context: all committed tokens, prompt first.
template <class D>
concept TokenDrafter = DraftText<D> &&
    requires(D& drafter, std::span<const Token> context, int most, std::vector<Token>& out) {
  { drafter.propose(context, most, out) } -> std::same_as<void>;
};

/// A drafter that weighs the probability of its tokens against their cost. set_row_cost() is called before propose().
/// cost: time to verify one token, in plain steps of the text; nothing if unknown.
template <class D>
concept WeighingDrafter = TokenDrafter<D> && requires(D& drafter, std::optional<float> cost) {
  { drafter.set_row_cost(cost) } -> std::same_as<void>;
};

/// A drafter with probabilities. propose(context, choose) calls `choose` with a row of logits per drafted token, and
/// continues with the returned token until `choose` returns nothing.
template <class D>
concept DistributionDrafter = DraftText<D> && requires(D& drafter, std::span<const Token> context, ChooseNext choose) {
  { drafter.propose(context, choose) } -> std::same_as<void>;
};

template <class D>
concept Drafter = TokenDrafter<D> || DistributionDrafter<D>;

/// Drafts nothing, which makes speculative decoding plain decoding.
struct NoDrafter {
  void start(std::span<const Token>) {}
  void rewind(int) {}
  void propose(std::span<const Token>, const ChooseNext&) {}
};

}}
