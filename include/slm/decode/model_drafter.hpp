// ModelDrafter: a draft model and its sequence for one request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/stats.hpp"
#include "slm/decode/token_map.hpp"
#include "slm/lm/any_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The owner of the requests runs its rows in batches of model(). Texts are in the target's ids. The vocabulary size
/// may differ from the target's: ids that the model lacks are replaced by a stand-in and counted. If its tokenizer
/// differs, a map translates token by token, so that the read text always continues the one before.
class ModelDrafter {
 public:
  explicit ModelDrafter(AnyModel model, std::shared_ptr<const TokenMap> map = nullptr)
      : model_(std::move(model)), map_(std::move(map)), sequence_(model_.sequence()) {
    const auto context = static_cast<std::size_t>(info().context);
    read_.reserve(context);
    ends_.reserve(context);
    if (map_) row_.assign(static_cast<std::size_t>(map_->target_vocab()), -std::numeric_limits<float>::infinity());
  }

  const AnyModel& model() const { return model_; }
  const ModelInfo& info() const { return model_.info(); }
  /// Number of tokens that the model has read.
  int length() const {
    return static_cast<int>(std::upper_bound(ends_.begin(), ends_.end(), sequence_.length()) - ends_.begin());
  }
  /// Positions that the model's context leaves after n tokens: a text and drafted tokens, which the model may have
  /// read.
  int positions_left(std::span<const Token> text, int n) const {
    if (!map_) return info().context - n;
    const int read = std::min(length(), static_cast<int>(text.size()));
    int positions = end_of(read) + n - static_cast<int>(text.size());
    for (const Token token : text.subspan(static_cast<std::size_t>(read))) {
      positions += static_cast<int>(map_->tokens_for(token).size());
    }
    return info().context - positions;
  }
  /// Whether the model can choose tokens itself.
  bool chooses() const { return info().chooses && !map_; }
  std::int64_t unmappable_tokens() const { return unmappable_; }
  void describe(Stats& stats) const {
    stats.draft_bytes_per_step = info().step_bytes;
    stats.common_tokens = map_ ? std::ssize(map_->common()) : 0;
  }

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
    const auto most = static_cast<std::size_t>(length());
    while (common < most && common + 1 < prompt.size() && read_[common] == prompt[common]) ++common;
    rewind(static_cast<int>(common));
  }

  /// Keeps at most the first `most` tokens.
  void rewind(int most) {
    const int kept = std::min(most, length());
    read_.resize(static_cast<std::size_t>(kept));
    ends_.resize(static_cast<std::size_t>(kept));
    if (sequence_.length() > end_of(kept)) sequence_.truncate(end_of(kept));
  }

  /// Begins a draft after the tokens read so far: rewind() will keep them.
  void begin_draft() { sequence_.expect_truncation(sequence_.length()); }

  /// Discards all tokens. Other sequences can reuse their positions.
  void forget() {
    sequence_.share_last_page();
    rewind(0);
  }

  /// Adds tokens that follow the read ones to a batch of model(). Returns the item's index.
  int plan(Batch& batch, std::span<const Token> tokens, const ResultSpec& ask) {
    rewind(length());  // drops tokens of a batch that failed
    mapped_.clear();
    for (const Token token : tokens) {
      translate(token);
      add(token, sequence_.length() + static_cast<int>(mapped_.size()));
    }
    return batch.add(sequence_, mapped_, ask);
  }

  /// After the forward: records the chosen tokens that the model has appended, all but the last.
  void take(std::span<const Token> chosen) {
    for (std::size_t i = 0; end_of(static_cast<int>(ends_.size())) < sequence_.length(); ++i) {
      add(chosen[i], end_of(static_cast<int>(ends_.size())) + 1);
    }
  }

  /// A row of the model's logits by the target's ids, up to the smaller vocabulary or, with a map, to the target's. Ids
  /// that the model lacks have minus infinity. Valid until the next call.
  std::span<const float> row_of(const float* logits) {
    if (!map_) return {logits, static_cast<std::size_t>(info().vocab)};
    for (const auto& [target, draft] : map_->common()) row_[static_cast<std::size_t>(target)] = logits[draft];
    return row_;
  }

 private:
  static constexpr Token stand_in = 0;

  /// The model's position after the first n tokens.
  int end_of(int n) const { return n == 0 ? 0 : ends_[static_cast<std::size_t>(n) - 1]; }

  void add(Token token, int end) {
    read_.push_back(token);
    ends_.push_back(end);
  }

  void translate(Token token) {
    if (map_) {
      const std::span<const Token> tokens = map_->tokens_for(token);
      mapped_.insert(mapped_.end(), tokens.begin(), tokens.end());
      unmappable_ += !map_->knows(token);
    } else {
      mapped_.push_back(token < info().vocab ? token : stand_in);
      unmappable_ += token >= info().vocab;
    }
  }

  AnyModel model_;
  std::shared_ptr<const TokenMap> map_;  // null: the target's tokenizer
  Sequence sequence_;
  std::vector<Token> read_;    // the read tokens
  std::vector<int> ends_;      // [read_.size()]: the model's position after each
  std::vector<Token> mapped_;  // scratch: the model's tokens
  std::vector<float> row_;     // [target's vocab]: scratch of a map
  std::int64_t unmappable_ = 0;
};

}}}
