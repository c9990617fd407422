// Drafters: where guesses at the next tokens come from. A model, a look-up in the text so far, or nothing.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/session.hpp"

namespace slm {

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

/// A drafter that proposes tokens without saying how likely it thought them: propose(context, most, out) appends at
/// most `most` tokens to `out`, its guess at what follows `context` (all committed tokens, prompt first).
template <class D>
concept TokenDrafter = requires(D& drafter, std::span<const Token> context, int most, std::vector<Token>& out) {
  { drafter.propose(context, most, out) } -> std::same_as<void>;
};

/// A drafter with a distribution: propose(context, choose) gives choose a row of logits for each token it drafts, and
/// goes on with the token that choose returns, until choose returns nothing.
template <class D>
concept DistributionDrafter = requires(D& drafter, std::span<const Token> context, ChooseNext choose) {
  { drafter.propose(context, choose) } -> std::same_as<void>;
};

/// Optional members of either kind of drafter:
///   start(prompt)     a request begins; reuse what still fits
///   rewind(length)    forget all but the first `length` tokens of the text, if more were read
///   context()         most tokens it can have read
///   length()          tokens it has read
///   info()            ModelInfo, compared with the target's
///   chooses(), propose_by(context, most, draw, out)
///                     whether it can choose tokens itself, and then as a TokenDrafter by this draw
template <class D>
concept Drafter = TokenDrafter<D> || DistributionDrafter<D>;

/// Drafts nothing: speculative decoding without a draft is plain decoding.
struct NoDrafter {
  void propose(std::span<const Token>, const ChooseNext&) {}
};

/// Prompt lookup: finds the latest earlier occurrence of the last tokens and proposes what followed. It reads committed
/// tokens only, so it has no state to roll back. A match of one token is mostly chance, and what it proposes is
/// verified for nothing: where rows are not free, that costs more than it brings. So does a draft length above 4, which
/// is the default of Speculation.
struct NgramDrafter {
  int longest = 4;   // tokens that must match, at best
  int shortest = 2;  // and at least

  void propose(std::span<const Token> context, int most, std::vector<Token>& out) const {
    const auto size = static_cast<std::ptrdiff_t>(context.size());
    std::ptrdiff_t best_length = std::max(shortest, 1) - 1;
    std::ptrdiff_t best_end = 0;
    for (std::ptrdiff_t end = size - 1; end > best_length; --end) {  // a candidate match ends before `end`
      std::ptrdiff_t length = 0;
      while (length < longest && length < end && context[at(end - 1 - length)] == context[at(size - 1 - length)]) {
        ++length;
      }
      if (length <= best_length) continue;
      best_length = length;
      best_end = end;
      if (length >= longest) break;
    }
    if (best_end == 0) return;
    const std::ptrdiff_t count = std::min<std::ptrdiff_t>(most, size - best_end);
    out.insert(out.end(), context.begin() + best_end, context.begin() + best_end + count);
  }

 private:
  static std::size_t at(std::ptrdiff_t index) { return static_cast<std::size_t>(index); }
};

/// Drafts with a language model. Its vocabulary may differ in size from the target's: ids it does not have are read as
/// a stand-in and counted.
template <LanguageModel M>
class ModelDrafter {
 public:
  explicit ModelDrafter(M model) : text_(std::move(model)) {}

  const ModelInfo& info() const { return text_.info(); }
  int context() const { return text_.info().context; }
  int length() const { return text_.length(); }
  std::int64_t unmappable_tokens() const { return unmappable_; }

  /// Reads the prompt but its last token, reusing the part of the KV cache that holds the same tokens.
  void start(std::span<const Token> prompt) {
    unmappable_ = 0;
    read_.reserve(static_cast<std::size_t>(context()));
    mapped_.reserve(static_cast<std::size_t>(context()));
    text_.reserve(context(), 1);  // after a pause there may be much to catch up with
    std::size_t common = 0;
    while (common < read_.size() && common + 1 < prompt.size() && read_[common] == prompt[common]) ++common;
    forget(common);
    if (prompt.size() - 1 > common && static_cast<int>(prompt.size()) <= context()) {
      read(prompt.subspan(common, prompt.size() - 1 - common), 0);
    }
  }

  void rewind(int length) {
    if (length < text_.length()) forget(static_cast<std::size_t>(length));
  }

  void propose(std::span<const Token> context, const ChooseNext& choose) {
    // Normally this is the anchor, and after a fully accepted round the last drafted token before it too.
    std::span<const float> row = read(context.subspan(static_cast<std::size_t>(text_.length())), 1);
    while (const std::optional<Token> token = choose(row)) row = read({&*token, 1}, 1);
  }

  bool chooses() const { return info().chooses; }

  /// Drafts `most` tokens where the model is.
  void propose_by(std::span<const Token> context, int most, const Draw& draw, std::vector<Token>& out) {
    const std::span<const Token> tokens = context.subspan(static_cast<std::size_t>(text_.length()));
    map(tokens);
    const std::span<const Token> proposed = text_.propose(mapped_, most, draw);
    read_.insert(read_.end(), tokens.begin(), tokens.end());
    const auto own = static_cast<std::ptrdiff_t>(text_.length()) - std::ssize(read_);  // of them it has read
    read_.insert(read_.end(), proposed.begin(), proposed.begin() + own);
    const auto end = std::find(proposed.begin(), proposed.end(), no_token);
    out.insert(out.end(), proposed.begin(), end);
    if (end != proposed.end()) {
      throw Error("decode.non-finite-logits",
                  text("the logits of ", info().name, " are not finite at token ", context.size() + out.size()),
                  "Check the draft's weights");
    }
  }

 private:
  void forget(std::size_t length) {
    if (text_.length() > static_cast<int>(length)) text_.truncate(static_cast<int>(length));
    if (read_.size() > length) read_.resize(length);
  }

  /// The tokens as the model knows them, in mapped_.
  void map(std::span<const Token> tokens) {
    const Token vocab = text_.info().vocab;
    mapped_.assign(tokens.begin(), tokens.end());
    for (Token& token : mapped_) {
      if (token < vocab) continue;
      token = stand_in;
      ++unmappable_;
    }
  }

  std::span<const float> read(std::span<const Token> tokens, int rows) {
    map(tokens);
    const View<const float, 2> logits = text_.forward(mapped_, rows);
    read_.insert(read_.end(), tokens.begin(), tokens.end());
    if (rows == 0) return {};
    return {logits.row(0), static_cast<std::size_t>(logits.extent(1))};
  }

  static constexpr Token stand_in = 0;

  Session<M> text_;
  std::vector<Token> read_;    // the tokens that were read, before mapping
  std::vector<Token> mapped_;  // scratch
  std::int64_t unmappable_ = 0;
};

/// The drafter that a decoder makes of its first argument: a model becomes a ModelDrafter.
template <class D>
struct DrafterFor {
  using type = D;
};
template <LanguageModel M>
struct DrafterFor<M> {
  using type = ModelDrafter<M>;
};

}  // namespace slm
