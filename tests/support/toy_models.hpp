// Toy language models and drafters for decoder tests: a hash of the text determines the logits, and violations of
// LanguageModel's contract throw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/model/planner.hpp"

namespace slm::testing {

inline std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/// Tokens that the seed determines.
inline std::vector<Token> some_text(std::uint64_t seed, int length, int vocab) {
  std::vector<Token> tokens;
  for (int i = 0; i < length; ++i)
    tokens.push_back(
        static_cast<Token>(mix(seed * 7919 + static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocab)));
  return tokens;
}

/// The calls of a toy model; survives a move of the model into a decoder.
struct ToyLog {
  std::int64_t forwards = 0;
  std::vector<int> batches;  // tokens of each forward, in order
  std::vector<Token> fed;    // all tokens ever fed
  int longest = 0;           // most tokens a sequence ever held
};

struct ToyOptions {
  int vocab = 8;
  int context = 4096;
  std::uint64_t seed = 1;        // determines the logits
  double spread = 3;             // logits are in [-spread, spread]
  std::uint64_t other_seed = 2;  // a second source of logits ...
  double other_share = 0;        // ... mixed in with this share: the draft's difference from the target
  int memory = 1 << 20;          // number of past tokens with influence
  std::vector<Token> end_tokens{};
  bool log = false;
};

/// logits(v) = hash(seed, the last `memory` tokens, v). Two models with the same options agree bit for bit.
class ToyModel {
 public:
  static constexpr int hidden = 4;  // width of its hidden states: the first logits

  explicit ToyModel(ToyOptions options) : options_(std::move(options)), log_(std::make_shared<ToyLog>()) {
    info_.name = "toy";
    info_.vocab = options_.vocab;
    info_.context = options_.context;
    info_.end_tokens = options_.end_tokens;
  }

  const ModelInfo& info() const { return info_; }
  ModelInfo& info() { return info_; }
  std::shared_ptr<ToyLog> log() const { return log_; }
  Sequence sequence() const { return Sequence(); }
  KvPool pool(KvPoolOptions = {}) const { return {}; }

  void forward(Batch& batch) const {
    detail::check_batch(batch, info_);
    batch.reserve(options_.vocab, hidden);
    ++log_->forwards;
    for (const Batch::Item& item : batch.items()) {
      const std::span<const Token> tokens = batch.tokens(item);
      if (tokens.empty()) throw std::logic_error("forward without tokens");
      if (options_.log) {
        log_->batches.push_back(static_cast<int>(tokens.size()));
        log_->fed.insert(log_->fed.end(), tokens.begin(), tokens.end());
      }
      std::vector<Token>& text = detail::SequenceAccess::state(*item.sequence).tokens;
      if (text.empty()) text.reserve(static_cast<std::size_t>(std::min(options_.context, 4096)));
      text.insert(text.end(), tokens.begin(), tokens.end());
      log_->longest = std::max(log_->longest, static_cast<int>(text.size()));
      if (item.spec.result == RowResult::nothing) continue;
      const auto rows = static_cast<std::size_t>(item.spec.rows);
      for (std::size_t row = 0; row < rows; ++row) {
        const auto before = std::span<const Token>(text).first(text.size() - rows + row + 1);
        if (item.spec.result == RowResult::logits) {
          fill(before, batch.logits_at(item.answer + row));
        } else {
          std::copy_n(logits_after(before).begin(), hidden, batch.hidden_at(item.answer + row));
        }
      }
    }
  }

  /// The logits after a prefix.
  std::vector<float> logits_after(std::span<const Token> prefix) const {
    std::vector<float> row(static_cast<std::size_t>(options_.vocab));
    fill(prefix, row.data());
    return row;
  }

 private:
  void fill(std::span<const Token> text, float* row) const {
    std::uint64_t state = 0;
    const auto memory = static_cast<std::size_t>(options_.memory);
    for (std::size_t i = text.size() > memory ? text.size() - memory : 0; i < text.size(); ++i) {
      state = mix(state ^ static_cast<std::uint64_t>(text[i]));
    }
    for (int v = 0; v < options_.vocab; ++v) {
      const auto id = static_cast<std::uint64_t>(v);
      const double own = opinion(options_.seed, state, id);
      const double other = options_.other_share > 0 ? opinion(options_.other_seed, state, id) : 0;
      row[v] = static_cast<float>(options_.spread * ((1 - options_.other_share) * own + options_.other_share * other));
    }
  }

  static double opinion(std::uint64_t seed, std::uint64_t state, std::uint64_t id) {
    return static_cast<double>(mix(mix(state ^ seed * 0x51ED27u) ^ (id << 1 | 1)) >> 11) * 0x1p-52 - 1.0;
  }

  ToyOptions options_;
  ModelInfo info_;
  std::shared_ptr<ToyLog> log_;
};

/// A model whose rows or steps fail on request: `spoil` sees each forward's number and rows, and may throw.
template <class M>
class SpoiltModel {
 public:
  using Spoil = std::function<void(int call, std::span<float> rows)>;

  SpoiltModel(ToyOptions options, Spoil spoil) : model_(std::move(options)), spoil_(std::move(spoil)) {}
  SpoiltModel(M model, Spoil spoil) : model_(std::move(model)), spoil_(std::move(spoil)) {}

  const ModelInfo& info() const { return model_.info(); }
  Sequence sequence() const { return model_.sequence(); }
  KvPool pool(KvPoolOptions options = {}) const { return model_.pool(options); }
  void forward(Batch& batch) const {
    model_.forward(batch);
    const Batch::Item& item = batch.items().front();
    const auto rows = static_cast<std::size_t>(item.spec.result == RowResult::logits ? item.spec.rows : 0);
    try {
      spoil_((*calls_)++, {batch.logits_at(item.answer), rows * static_cast<std::size_t>(info().vocab)});
    } catch (...) {
      item.sequence->truncate(item.sequence->length() - static_cast<int>(item.count));
      throw;
    }
  }

 private:
  M model_;
  Spoil spoil_;
  std::shared_ptr<int> calls_ = std::make_shared<int>(0);
};
template <class Spoil>
SpoiltModel(ToyOptions, Spoil) -> SpoiltModel<ToyModel>;

/// A model that calls a hook before each batch. The hook may throw.
template <class M>
class Watched {
 public:
  Watched(M model, std::function<void(const Batch&)> hook) : model_(std::move(model)), hook_(std::move(hook)) {}

  const ModelInfo& info() const { return model_.info(); }
  Sequence sequence() const { return model_.sequence(); }
  KvPool pool(KvPoolOptions options = {}) const { return model_.pool(options); }
  void forward(Batch& batch) const {
    hook_(batch);
    model_.forward(batch);
  }

 private:
  M model_;
  std::function<void(const Batch&)> hook_;
};

/// Its greedy text is a given script: after any n tokens, its choice is script[n].
class ScriptedModel {
 public:
  ScriptedModel(std::vector<Token> script, int vocab, std::vector<Token> end_tokens = {}, int context = 4096)
      : script_(std::move(script)), log_(std::make_shared<ToyLog>()) {
    info_.name = "script";
    info_.vocab = vocab;
    info_.context = context;
    info_.end_tokens = std::move(end_tokens);
  }

  const ModelInfo& info() const { return info_; }
  std::shared_ptr<ToyLog> log() const { return log_; }
  Sequence sequence() const { return Sequence(); }
  KvPool pool(KvPoolOptions = {}) const { return {}; }
  void forward(Batch& batch) const {
    detail::check_batch(batch, info_);
    batch.reserve(info_.vocab, 0);
    ++log_->forwards;
    for (const Batch::Item& item : batch.items()) {
      std::vector<Token>& text = detail::SequenceAccess::state(*item.sequence).tokens;
      const std::span<const Token> tokens = batch.tokens(item);
      log_->batches.push_back(static_cast<int>(tokens.size()));
      text.insert(text.end(), tokens.begin(), tokens.end());
      log_->longest = std::max(log_->longest, static_cast<int>(text.size()));
      const auto rows = static_cast<std::size_t>(item.spec.result == RowResult::logits ? item.spec.rows : 0);
      for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t place = text.size() - rows + row + 1;
        float* const logits = batch.logits_at(item.answer + row);
        std::fill_n(logits, info_.vocab, 0.0f);
        logits[place < script_.size() ? script_[place] : 0] = 9.0f;
      }
    }
  }

 private:
  std::vector<Token> script_;
  ModelInfo info_;
  std::shared_ptr<ToyLog> log_;
};

/// Proposes the tokens of a function; no distribution.
struct ScriptedDrafter {
  std::function<void(std::span<const Token> context, int most, std::vector<Token>& out)> script;
  void start(std::span<const Token>) {}
  void rewind(int) {}
  void propose(std::span<const Token> context, int most, std::vector<Token>& out) { script(context, most, out); }
};

/// Proposes the known text, shifted by `offset` ids: 0 is always correct, 1 always wrong.
inline ScriptedDrafter prophet(std::vector<Token> whole_text, int vocab, Token offset = 0) {
  return {
      [text = std::move(whole_text), vocab, offset](std::span<const Token> context, int most, std::vector<Token>& out) {
        for (std::size_t i = context.size(); i < text.size() && most > 0; ++i, --most) {
          out.push_back(static_cast<Token>((text[i] + offset) % vocab));
        }
      }};
}

}  // namespace slm::testing
