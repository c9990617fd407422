// HeadRows: logits of single tokens beyond the part of a head that a model has packed (LoadOptions::head_tokens).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/convert.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// A text repeats its rare tokens, such as names, so these have logits too. Their rows are read from the whole head,
/// which costs little since they are few. Thread-safe.
class HeadRows {
 public:
  /// head [vocab, hidden]: its bytes must outlive this unless the tensor owns them. first: the ids from here on are not
  /// packed. cap: the soft cap of logits, or 0.
  HeadRows(Tensor head, int first, float cap) : head_(std::move(head)), first_(first), cap_(cap) {}

  /// Replaces minus infinity by the logits of the text's tokens. hidden: the normalized hidden state of the row.
  void add(std::span<const Token> text, std::span<const float> hidden, float* logits) const {
    const auto columns = static_cast<std::int64_t>(hidden.size());
    std::vector<float> row;
    for (const Token token : text) {
      if (token < first_ || logits[token] != -std::numeric_limits<float>::infinity()) continue;
      row.resize(hidden.size());
      convert(head_, token * columns, columns, row.data());
      float sum = 0;
      for (std::size_t i = 0; i < hidden.size(); ++i) sum += row[i] * hidden[i];
      logits[token] = cap_ == 0 ? sum : cap_ * std::tanh(sum / cap_);
    }
  }

 private:
  Tensor head_;
  Token first_;
  float cap_;
};

}}}
