// Drafter: the sources of drafts of a decoder or an engine. This header also has the concepts of a source; models are
// in model_drafter.hpp, lookup in lookup.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/request.hpp"
#include "slm/lm/any_model.hpp"

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

/// A source that needs the whole request instead of its prompt.
template <class S>
concept RequestSource = requires(S& source, const Request& request) {
  { source.start(request) } -> std::same_as<void>;
};

/// Operations of every source of drafts. Each request has its own copy.
///  start(prompt)    begins a request; or start(request)
///  rewind(length)   discards state beyond `length` tokens, the text's length without its last token
template <class S>
concept DraftText = std::copy_constructible<S> && requires(S& source, int length) {
  { source.rewind(length) } -> std::same_as<void>;
} &&(RequestSource<S> || requires(S & source, std::span<const Token> prompt) {
  { source.start(prompt) } -> std::same_as<void>;
});

/// A source of tokens. propose(context, most, out) appends at most `most` proposed successors of `context` to `out`. It
/// is called in each round and should take little time. context: all committed tokens, prompt first.
template <class S>
concept TokenSource = DraftText<S> &&
    requires(S& source, std::span<const Token> context, int most, std::vector<Token>& out) {
  { source.propose(context, most, out) } -> std::same_as<void>;
};

/// A source that estimates its tokens: it also appends to `chances`, for each token, the probability that it is
/// accepted if all tokens before it are; 1 for tokens that no other may replace. Other sources are judged by their
/// record.
template <class S>
concept EstimatingSource = DraftText<S> && requires(S& source, std::span<const Token> context, int most,
                                                    std::vector<Token>& out, std::vector<float>& chances) {
  { source.propose(context, most, out, chances) } -> std::same_as<void>;
};

/// A source with distributions. propose(context, choose) calls `choose` with a row of logits per drafted token, and
/// continues with the returned token until `choose` returns nothing.
template <class S>
concept DistributionSource = DraftText<S> && requires(S& source, std::span<const Token> context, ChooseNext choose) {
  { source.propose(context, choose) } -> std::same_as<void>;
};

/// finish(text, prompt), optional: a request has ended. text: prompt and answer; prompt: the number of its tokens.
template <class S>
concept FinishingSource = requires(S& source, std::span<const Token> text, std::size_t prompt) {
  { source.finish(text, prompt) } -> std::same_as<void>;
};

/// isolate(), optional: from now on the source must not depend on other requests, since the text depends on the draft
/// (rules with !may_drop).
template <class S>
concept IsolatingSource = requires(S& source) {
  { source.isolate() } -> std::same_as<void>;
};

/// forces_text, optional: the source drafts what a constraint forces; the statistics count its tokens.
template <class S>
concept ForcingSource = requires {
  requires S::forces_text;
};

template <class S>
concept DraftSource = TokenSource<S> || EstimatingSource<S> || DistributionSource<S>;

class Drafter;

/// A model or a source that a Drafter holds.
template <class S>
concept DrafterPart = !std::same_as<S, Drafter> && (LanguageModel<S> || DraftSource<S>);

namespace detail {

class TokenMap;

/// A source of any type, for one text.
struct Source {
  enum class Kind { tokens, estimates, distributions };

  explicit Source(Kind of, bool forced = false) : kind(of), forces(forced) {}
  virtual ~Source() = default;
  virtual std::unique_ptr<Source> copy() const = 0;
  virtual void start(const Request& request) = 0;
  virtual void rewind(int length) = 0;
  virtual void propose(std::span<const Token> context, int most, std::vector<Token>& out,
                       std::vector<float>& chances) = 0;
  virtual void propose(std::span<const Token> context, const ChooseNext& choose) = 0;
  virtual void finish(std::span<const Token> text, std::size_t prompt) = 0;
  virtual void isolate() = 0;

  const Kind kind;
  const bool forces;  // see ForcingSource
};

template <DraftSource S>
struct SourceHolder final : Source {
  explicit SourceHolder(S of)
      : Source(DistributionSource<S> ? Kind::distributions
               : EstimatingSource<S> ? Kind::estimates
                                     : Kind::tokens,
               ForcingSource<S>),
        source(std::move(of)) {}

  std::unique_ptr<Source> copy() const override { return std::make_unique<SourceHolder>(source); }
  void start(const Request& request) override {
    if constexpr (RequestSource<S>) {
      source.start(request);
    } else {
      source.start(std::span<const Token>(request.prompt));
    }
  }
  void rewind(int length) override { source.rewind(length); }
  void propose(std::span<const Token> context, int most, std::vector<Token>& out,
               std::vector<float>& chances) override {
    if constexpr (EstimatingSource<S>) {
      source.propose(context, most, out, chances);
    } else if constexpr (TokenSource<S>) {
      source.propose(context, most, out);
    }
  }
  void propose(std::span<const Token> context, const ChooseNext& choose) override {
    if constexpr (DistributionSource<S>) source.propose(context, choose);
  }
  void finish(std::span<const Token> text, std::size_t prompt) override {
    if constexpr (FinishingSource<S>) source.finish(text, prompt);
  }
  void isolate() override {
    if constexpr (IsolatingSource<S>) source.isolate();
  }

  S source;
};

}  // namespace detail

/// The sources of drafts: any number of sources of tokens, and at most one draft model or source with distributions. In
/// each round the best source of a request drafts. Drafter{} has none: decoding is plain.
class Drafter {
 public:
  Drafter() = default;

  template <DrafterPart... S>
  requires(sizeof...(S) > 0) Drafter(S... sources) { (add(std::move(sources)), ...); }

  /// Throws decode.two-draft-models.
  template <DrafterPart S>
  void add(S source) {
    if constexpr (LanguageModel<S>) {
      check_one_model();
      model_.emplace(std::move(source));
    } else {
      if constexpr (DistributionSource<S>) check_one_model();
      has_distributions_ = has_distributions_ || DistributionSource<S>;
      sources_.push_back(std::make_shared<detail::SourceHolder<S>>(std::move(source)));
    }
  }

  /// The draft model, or null.
  const AnyModel* model() const { return model_ ? &*model_ : nullptr; }
  /// The sources besides it, as they were added.
  std::span<const std::shared_ptr<const detail::Source>> sources() const { return sources_; }
  bool empty() const { return !model_ && sources_.empty(); }

  /// The map to the target's tokens if the draft model has another tokenizer, else null. Decoders and engines set it.
  const std::shared_ptr<const detail::TokenMap>& token_map() const { return token_map_; }
  void set(std::shared_ptr<const detail::TokenMap> map) { token_map_ = std::move(map); }

 private:
  void check_one_model() const {
    if (!model_ && !has_distributions_) return;
    throw Error("decode.two-draft-models", "expected at most one draft model or source with distributions, found two",
                "Choose one of them");
  }

  std::optional<AnyModel> model_;
  std::vector<std::shared_ptr<const detail::Source>> sources_;
  bool has_distributions_ = false;
  std::shared_ptr<const detail::TokenMap> token_map_;
};

namespace detail {

/// A decoder's draft as a Drafter.
template <class Draft, class Target>
Drafter drafter_for(Draft draft) {
  static_assert(LanguageModel<Draft> || DraftSource<Draft> || std::same_as<Draft, Drafter>,
                "slm: the draft must be a LanguageModel or have start(), rewind() and propose() (see "
                "slm/decode/drafter.hpp)");
  static_assert(LanguageModel<Target>, "slm: the target must be a LanguageModel");
  if constexpr (std::is_constructible_v<Drafter, Draft>) {
    return Drafter(std::move(draft));
  } else {
    return {};
  }
}

}  // namespace detail

}}
