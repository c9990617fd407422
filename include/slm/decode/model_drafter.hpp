// ModelDrafter: a draft model and its sequence for one request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/lm/any_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The owner of the requests runs its rows in batches of model(). The vocabulary size may differ from the target's: ids
/// that the model lacks are replaced by a stand-in and counted.
class ModelDrafter {
 public:
  explicit ModelDrafter(AnyModel model) : model_(std::move(model)), sequence_(model_.sequence()) {
    read_.reserve(static_cast<std::size_t>(info().context));
  }

  const AnyModel& model() const { return model_; }
  const ModelInfo& info() const { return model_.info(); }
  int length() const { return sequence_.length(); }
  std::int64_t unmappable_tokens() const { return unmappable_; }

  /// Sets the adapter for drafting; null: none. Throws adapter.other-model.
  void adapt(const AdapterRef& adapter) {
    check_adapter(adapter, info());
    if (adapter == sequence_.adapter()) return;
    rewind(0);
    sequence_.adapt(adapter);
  }

  /// Starts a text; keeps the common prefix with the previous one.
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

  /// Adds tokens that follow the read ones to a batch of model(). Returns the item's index.
  int plan(Batch& batch, std::span<const Token> tokens, const ResultSpec& ask) {
    read_.resize(static_cast<std::size_t>(length()));  // drops tokens of a batch that failed
    read_.insert(read_.end(), tokens.begin(), tokens.end());
    mapped_.assign(tokens.begin(), tokens.end());
    for (Token& token : mapped_) {
      if (token < info().vocab) continue;
      token = stand_in;
      ++unmappable_;
    }
    return batch.add(sequence_, mapped_, ask);
  }

  /// After the forward: records the chosen tokens that the model has appended, all but the last.
  void take(std::span<const Token> chosen) {
    const std::size_t own = static_cast<std::size_t>(length()) - read_.size();
    read_.insert(read_.end(), chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(own));
  }

 private:
  static constexpr Token stand_in = 0;

  AnyModel model_;
  Sequence sequence_;
  std::vector<Token> read_;    // the sequence's tokens before mapping to the model's ids
  std::vector<Token> mapped_;  // scratch
  std::int64_t unmappable_ = 0;
};

}}}
