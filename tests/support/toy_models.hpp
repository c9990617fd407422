// Toy language models and drafters for decoder tests: a hash of the text decides the logits, a real list plays the KV
// cache, and whatever breaks the contract of LanguageModel throws.
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
#include "slm/model/language_model.hpp"

namespace slm::testing {

inline std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/// What a toy model has been asked to do; outlives its being moved into a decoder.
struct ToyLog {
  std::int64_t forwards = 0;
  std::vector<int> batches;  // tokens of each extend, in order
  std::vector<Token> fed;    // all tokens ever fed
  int longest = 0;           // most tokens the KV cache ever held
};

struct ToyOptions {
  int vocab = 8;
  int context = 4096;
  std::uint64_t seed = 1;        // decides the logits
  double spread = 3;             // logits lie in [-spread, spread]
  std::uint64_t other_seed = 2;  // a second opinion ...
  double other_share = 0;        // ... mixed in with this share: how unlike a target the draft is
  int memory = 1 << 20;          // tokens of the past that matter
  std::vector<Token> end_tokens{};
  bool log = false;
};

/// logits(v) = hash(seed, the last `memory` tokens, v). Two models with the same options agree bit for bit.
class ToyModel {
 public:
  explicit ToyModel(ToyOptions options) : options_(std::move(options)), log_(std::make_shared<ToyLog>()) {
    info_.name = "toy";
    info_.vocab = options_.vocab;
    info_.context = options_.context;
    info_.end_tokens = options_.end_tokens;
  }

  const ModelInfo& info() const { return info_; }
  ModelInfo& info() { return info_; }
  int length() const { return static_cast<int>(tokens_.size()); }
  std::shared_ptr<ToyLog> log() const { return log_; }
  const std::vector<Token>& tokens() const { return tokens_; }

  View<const float, 2> extend(std::span<const Token> tokens, int rows) {
    if (tokens.empty()) throw std::logic_error("extend without tokens");
    if (rows < 0 || rows > static_cast<int>(tokens.size())) throw std::logic_error("more rows than tokens");
    for (const Token token : tokens) {
      if (token < 0 || token >= options_.vocab) throw Error("toy.token", text("id ", token), "Feed a valid one");
    }
    if (length() + static_cast<int>(tokens.size()) > options_.context) {
      throw Error("toy.context", text("past ", options_.context), "Feed less");
    }
    ++log_->forwards;
    if (options_.log) {
      log_->batches.push_back(static_cast<int>(tokens.size()));
      log_->fed.insert(log_->fed.end(), tokens.begin(), tokens.end());
    }
    if (tokens_.empty()) tokens_.reserve(static_cast<std::size_t>(std::min(options_.context, 4096)));
    const std::size_t before = tokens_.size();
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    log_->longest = std::max(log_->longest, length());
    const auto width = static_cast<std::size_t>(options_.vocab);
    if (logits_.empty()) logits_.reserve(32 * width);  // a real model's scratch does not grow with use either
    logits_.resize(static_cast<std::size_t>(rows) * width);
    const std::size_t first = before + tokens.size() - static_cast<std::size_t>(rows);
    for (int row = 0; row < rows; ++row) {
      fill(first + static_cast<std::size_t>(row) + 1, logits_.data() + static_cast<std::size_t>(row) * width);
    }
    return {std::as_const(logits_).data(), rows, options_.vocab};
  }

  void truncate(int length) {
    if (length < 0 || length > this->length()) throw std::logic_error("truncate to more than there is");
    tokens_.resize(static_cast<std::size_t>(length));
  }

  /// The logits after a prefix, without the KV cache.
  std::vector<float> logits_after(std::span<const Token> prefix) const {
    ToyModel fresh{options_};
    fresh.tokens_.assign(prefix.begin(), prefix.end());
    std::vector<float> row(static_cast<std::size_t>(options_.vocab));
    fresh.fill(prefix.size(), row.data());
    return row;
  }

 private:
  void fill(std::size_t length, float* row) const {
    std::uint64_t state = 0;
    const auto memory = static_cast<std::size_t>(options_.memory);
    for (std::size_t i = length > memory ? length - memory : 0; i < length; ++i) {
      state = mix(state ^ static_cast<std::uint64_t>(tokens_[i]));
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
  std::vector<Token> tokens_;
  std::vector<float> logits_;
};

/// A model whose rows or steps go wrong on request: `spoil` sees each extend's number and rows, and may throw.
class SpoiltModel {
 public:
  using Spoil = std::function<void(int call, std::span<float> rows)>;

  SpoiltModel(ToyOptions options, Spoil spoil) : model_(std::move(options)), spoil_(std::move(spoil)) {}

  const ModelInfo& info() const { return model_.info(); }
  int length() const { return model_.length(); }
  void truncate(int length) { model_.truncate(length); }
  View<const float, 2> extend(std::span<const Token> tokens, int rows) {
    const auto logits = model_.extend(tokens, rows);
    rows_.assign(logits.data, logits.data + logits.size());
    try {
      spoil_(calls_++, rows_);
    } catch (...) {
      model_.truncate(model_.length() - static_cast<int>(tokens.size()));
      throw;
    }
    return {std::as_const(rows_).data(), rows, info().vocab};
  }

 private:
  ToyModel model_;
  Spoil spoil_;
  int calls_ = 0;
  std::vector<float> rows_;
};

/// Its greedy text is a given script: after n tokens, whichever they are, it wants script[n].
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
  int length() const { return length_; }
  std::shared_ptr<ToyLog> log() const { return log_; }
  View<const float, 2> extend(std::span<const Token> tokens, int rows) {
    ++log_->forwards;
    log_->batches.push_back(static_cast<int>(tokens.size()));
    length_ += static_cast<int>(tokens.size());
    if (length_ > info_.context) throw std::logic_error("past the context");
    log_->longest = std::max(log_->longest, length_);
    logits_.assign(static_cast<std::size_t>(rows) * static_cast<std::size_t>(info_.vocab), 0.0f);
    for (int row = 0; row < rows; ++row) {
      const auto place = static_cast<std::size_t>(length_ - rows + row + 1);
      const Token wanted = place < script_.size() ? script_[place] : 0;
      logits_[static_cast<std::size_t>(row * info_.vocab + wanted)] = 9.0f;
    }
    return {std::as_const(logits_).data(), rows, info_.vocab};
  }
  void truncate(int length) {
    if (length < 0 || length > length_) throw std::logic_error("truncate to more than there is");
    length_ = length;
  }

 private:
  std::vector<Token> script_;
  ModelInfo info_;
  std::shared_ptr<ToyLog> log_;
  int length_ = 0;
  std::vector<float> logits_;
};

/// Proposes whatever a function says; no distribution.
struct ScriptedDrafter {
  std::function<void(std::span<const Token> context, int most, std::vector<Token>& out)> script;
  void propose(std::span<const Token> context, int most, std::vector<Token>& out) { script(context, most, out); }
};

/// Knows the text in advance and proposes it, `offset` ids off: 0 is always right, 1 always wrong.
inline ScriptedDrafter prophet(std::vector<Token> whole_text, int vocab, Token offset = 0) {
  return {
      [text = std::move(whole_text), vocab, offset](std::span<const Token> context, int most, std::vector<Token>& out) {
        for (std::size_t i = context.size(); i < text.size() && most > 0; ++i, --most) {
          out.push_back(static_cast<Token>((text[i] + offset) % vocab));
        }
      }};
}

}  // namespace slm::testing
