// Random tokenizers, and toy models whose logits depend on the bytes of the text: models with different tokenizers then
// agree on the same text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/toy_models.hpp"

namespace slm::testing {

/// The form of a vocabulary's token texts.
enum class TextForm { plain, byte_level, sentencepiece };

/// The text of a token with these bytes, of letters and spaces.
inline std::string written(std::string_view bytes, TextForm form) {
  const char* const space = form == TextForm::byte_level ? "\xC4\xA0" : "\xE2\x96\x81";
  std::string token;
  for (const char byte : bytes) {
    if (byte == ' ' && form != TextForm::plain) {
      token += space;
    } else {
      token.push_back(byte);
    }
  }
  return token;
}

/// logits(v) = hash(seed, bytes of the text, bytes of v), mixed with another hash as ToyModel does.
class TextModel {
 public:
  /// bytes: of each token; empty: none. log: counts forwards and keeps the bytes of the last sequence in text().
  TextModel(std::vector<std::string> bytes, TextForm form, ToyOptions options)
      : bytes_(std::make_shared<const std::vector<std::string>>(std::move(bytes))), options_(std::move(options)) {
    info_.name = "text";
    info_.vocab = static_cast<int>(bytes_->size());
    info_.context = options_.context;
    info_.end_tokens = options_.end_tokens;
    info_.tokens = [bytes = bytes_, form] {
      std::vector<std::string> tokens;
      for (const std::string& token : *bytes) tokens.push_back(written(token, form));
      return tokens;
    };
  }

  const ModelInfo& info() const { return info_; }
  ModelInfo& info() { return info_; }
  Sequence sequence() const { return Sequence(); }
  KvPool pool(KvPoolOptions = {}) const { return {}; }
  /// The bytes that the last sequence of a batch held.
  const std::string& text() const { return *text_; }

  void forward(Batch& batch) const {
    detail::check_batch(batch, info_);
    batch.reserve(info_.vocab, 0);
    for (const Batch::Item& item : batch.items()) {
      std::vector<Token>& text = detail::SequenceAccess::state(*item.sequence).tokens;
      const std::span<const Token> tokens = batch.tokens(item);
      text.insert(text.end(), tokens.begin(), tokens.end());
      const auto rows = static_cast<std::size_t>(item.spec.result == RowResult::logits ? item.spec.rows : 0);
      for (std::size_t row = 0; row < rows; ++row) {
        fill(std::span<const Token>(text).first(text.size() - rows + row + 1), batch.logits_at(item.answer + row));
      }
      *text_ = bytes_of(text);
    }
  }

  std::string bytes_of(std::span<const Token> tokens) const {
    std::string all;
    for (const Token token : tokens) all += (*bytes_)[static_cast<std::size_t>(token)];
    return all;
  }

 private:
  static std::uint64_t hash(std::uint64_t state, std::string_view bytes) {
    for (const char byte : bytes) state = mix(state ^ static_cast<unsigned char>(byte));
    return state;
  }
  static double opinion(std::uint64_t seed, std::uint64_t state, std::uint64_t token) {
    return static_cast<double>(mix(mix(state ^ seed * 0x51ED27u) ^ token) >> 11) * 0x1p-52 - 1.0;
  }

  void fill(std::span<const Token> text, float* row) const {
    const std::uint64_t state = hash(0, bytes_of(text));
    for (std::size_t v = 0; v < bytes_->size(); ++v) {
      const std::uint64_t token = (*bytes_)[v].empty() ? v : hash(1, (*bytes_)[v]);
      const double own = opinion(options_.seed, state, token);
      const double other = options_.other_share > 0 ? opinion(options_.other_seed, state, token) : 0;
      row[v] = static_cast<float>(options_.spread * ((1 - options_.other_share) * own + options_.other_share * other));
    }
  }

  std::shared_ptr<const std::vector<std::string>> bytes_;
  ToyOptions options_;
  ModelInfo info_;
  std::shared_ptr<std::string> text_ = std::make_shared<std::string>();
};

}  // namespace slm::testing
