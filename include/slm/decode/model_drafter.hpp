// ModelDrafter: a language model that drafts, and the text it has read of one request.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Its rows are part of batches, which whoever holds the requests gives to model(). The vocabulary may differ in size
/// from the target's: ids that the model does not have are read as a stand-in and counted.
template <LanguageModel M>
class ModelDrafter {
 public:
  explicit ModelDrafter(M model) : model_(std::move(model)), sequence_(model_.sequence()) {
    read_.reserve(static_cast<std::size_t>(info().context));
  }

  const M& model() const { return model_; }
  const ModelInfo& info() const { return model_.info(); }
  int length() const { return sequence_.length(); }
  std::int64_t unmappable_tokens() const { return unmappable_; }

  /// The coming texts are drafted with this adapter, or with none. Throws adapter.other-model.
  void adapt(const AdapterRef& adapter) {
    check_adapter(adapter, info());
    if (adapter == sequence_.adapter()) return;
    rewind(0);
    sequence_.adapt(adapter);
  }

  /// Keeps what the prompt has in common with the text before.
  void start(std::span<const Token> prompt) {
    unmappable_ = 0;
    mapped_.reserve(static_cast<std::size_t>(info().context));
    std::size_t common = 0;
    const std::size_t most = std::min(read_.size(), static_cast<std::size_t>(length()));
    while (common < most && common + 1 < prompt.size() && read_[common] == prompt[common]) ++common;
    rewind(static_cast<int>(common));
  }

  void rewind(int length) {
    if (sequence_.length() > length) sequence_.truncate(length);
    read_.resize(std::min(read_.size(), static_cast<std::size_t>(sequence_.length())));
  }

  /// Adds tokens that follow what it has read to a batch of model(); returns the item's number.
  int plan(Batch& batch, std::span<const Token> tokens, const Ask& ask) {
    read_.resize(static_cast<std::size_t>(length()));  // what a refused batch added
    read_.insert(read_.end(), tokens.begin(), tokens.end());
    mapped_.assign(tokens.begin(), tokens.end());
    for (Token& token : mapped_) {
      if (token < info().vocab) continue;
      token = stand_in;
      ++unmappable_;
    }
    return batch.add(sequence_, mapped_, ask);
  }

  /// After the forward: of the tokens that the model chose one after the other it has read all but the last.
  void take(std::span<const Token> chosen) {
    const std::size_t own = static_cast<std::size_t>(length()) - read_.size();
    read_.insert(read_.end(), chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(own));
  }

 private:
  static constexpr Token stand_in = 0;

  M model_;
  Sequence sequence_;
  std::vector<Token> read_;    // the sequence's tokens before mapping
  std::vector<Token> mapped_;  // scratch
  std::int64_t unmappable_ = 0;
};

/// A drafter whose rows a model computes together with those of other requests.
template <class D>
concept BatchedDrafter = DraftText<D> &&
    requires(D& drafter, Batch& batch, std::span<const Token> tokens, const Ask& ask, const AdapterRef& adapter) {
  { drafter.model().forward(batch) } -> std::same_as<void>;
  { drafter.info() } -> std::same_as<const ModelInfo&>;
  { drafter.length() } -> std::same_as<int>;
  { drafter.unmappable_tokens() } -> std::same_as<std::int64_t>;
  drafter.adapt(adapter);
  { drafter.plan(batch, tokens, ask) } -> std::same_as<int>;
  { drafter.take(tokens) } -> std::same_as<void>;
};

/// What a decoder makes of its first argument: a model becomes a ModelDrafter.
template <class D>
struct DrafterFor {
  using type = D;
};
template <LanguageModel M>
struct DrafterFor<M> {
  using type = ModelDrafter<M>;
};

}}
