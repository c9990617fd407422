// Drafters: where guesses at the next tokens come from. A look-up in the text so far, nothing, or what a user writes;
// models are in model_drafter.hpp.
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

/// Hands a row of logits to the decoder, which chooses the drafted token under the same sampling as the target and
/// remembers its distribution. Returns the token to read next, or nothing when the draft is long enough.
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

/// What every drafter has:
///   start(prompt)    a request begins
///   rewind(length)   the text is `length` tokens long but for the last: forget what was read beyond
template <class D>
concept DraftText = requires(D& drafter, std::span<const Token> prompt, int length) {
  { drafter.start(prompt) } -> std::same_as<void>;
  { drafter.rewind(length) } -> std::same_as<void>;
};

/// A drafter that proposes tokens without saying how likely it thought them: propose(context, most, out) appends at
/// most `most` tokens to `out`, its guess at what follows `context` (all committed tokens, prompt first).
template <class D>
concept TokenDrafter = DraftText<D> &&
    requires(D& drafter, std::span<const Token> context, int most, std::vector<Token>& out) {
  { drafter.propose(context, most, out) } -> std::same_as<void>;
};

/// A drafter that knows how likely its tokens are, and weighs that against their cost: before propose(), set_row_cost()
/// tells what the verification of a token costs at present, in plain steps of its text; nothing where that is not
/// known.
template <class D>
concept WeighingDrafter = TokenDrafter<D> && requires(D& drafter, std::optional<float> cost) {
  { drafter.set_row_cost(cost) } -> std::same_as<void>;
};

/// A drafter with a distribution: propose(context, choose) gives choose a row of logits for each token it drafts, and
/// goes on with the token that choose returns, until choose returns nothing.
template <class D>
concept DistributionDrafter = DraftText<D> && requires(D& drafter, std::span<const Token> context, ChooseNext choose) {
  { drafter.propose(context, choose) } -> std::same_as<void>;
};

template <class D>
concept Drafter = TokenDrafter<D> || DistributionDrafter<D>;

/// Drafts nothing: speculative decoding without a draft is plain decoding.
struct NoDrafter {
  void start(std::span<const Token>) {}
  void rewind(int) {}
  void propose(std::span<const Token>, const ChooseNext&) {}
};

}}
