// PromptRows: results that a request needs from its prompt's rows: log-probabilities or an embedding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/logits_scan.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/sink.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Takes each row once and in order, independent of how the prompt is divided or re-read.
class PromptRows {
 public:
  /// The request must outlive its answer.
  void start(const Request& request) {
    request_ = &request;
    const std::size_t size = request.prompt.size();
    next_ = request.logprobs.prompt || request.pooling == Pooling::mean ? 0
            : request.pooling == Pooling::last                          ? size - 1
                                                                        : size;
    end_ = request.logprobs.prompt ? size - 1 : size;
    sums_.clear();
    report_.reserve(request.logprobs.top);
  }

  /// Whether rows remain.
  bool left() const { return next_ < end_; }
  /// The next row; the prompt's size if the request needs none.
  std::size_t next() const { return next_; }

  /// The ResultSpec for tokens up to `end`. The tokens must begin at or before next().
  ResultSpec spec(std::size_t end) const {
    if (!left() || end <= next_) return {};
    return {.result = request_->pooling ? RowResult::hidden : RowResult::logits, .rows = static_cast<int>(end - next_)};
  }

  /// Takes the results of spec(end). Throws decode.non-finite-logits.
  void take(const Batch& batch, int item, std::size_t end, const ModelInfo& model) {
    if (!left() || end <= next_) return;
    if (request_->pooling) {
      pool(batch.hidden(item));
    } else {
      const auto rows = batch.logits(item);
      for (std::int64_t r = 0; r < rows.extent(0); ++r)
        score({rows.row(r), static_cast<std::size_t>(model.vocab)}, next_ + static_cast<std::size_t>(r) + 1, model);
    }
    next_ = end;
    if (left() || !request_->pooling || !request_->embedded) return;
    std::vector<float> mean;
    const auto count = static_cast<double>(request_->pooling == Pooling::last ? 1 : end_);
    for (const double sum : sums_) mean.push_back(static_cast<float>(sum / count));
    if (!std::all_of(mean.begin(), mean.end(), [](float value) { return std::isfinite(value); })) {
      throw Error("decode.non-finite-logits",
                  text("expected finite hidden states of ", model.name, ", found NaN or infinity"),
                  "Check the target's weights");
    }
    request_->embedded(mean);
  }

 private:
  /// Reports the prompt token at index `place`, scored by the row before it.
  void score(std::span<const float> row, std::size_t place, const ModelInfo& model) {
    if (find_peak(row).token == no_token) throw non_finite_logits(model, place);
    GeneratedToken scored{.token = request_->prompt[place], .position = static_cast<std::int64_t>(place)};
    report_.by_row(row, scored.token, request_->logprobs.top);
    scored.logprob = report_.logprob();
    scored.top = report_.top();
    if (request_->scored) request_->scored(scored);
  }

  void pool(View<const float, 2> rows) {
    sums_.resize(static_cast<std::size_t>(rows.extent(1)));
    for (std::int64_t r = 0; r < rows.extent(0); ++r)
      for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += double{rows.row(r)[i]};
  }

  const Request* request_ = nullptr;
  std::size_t next_ = 0, end_ = 0;
  std::vector<double> sums_;  // [hidden]: sum of the rows so far
  LogprobReport report_;
};

}}}
