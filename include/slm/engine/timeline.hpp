// Timeline: event times of a request, and its share of the engine's statistics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "slm/decode/stats.hpp"
#include "slm/engine/stats.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class Timeline {
 public:
  explicit Timeline(double submitted) : submitted_(submitted) {}

  void begin(double now) {
    if (!begun_) begun_ = now;
  }
  void preempt() { ++preemptions_; }

  /// Adds a round of a generation. Returns its number of tokens, prompt and generated.
  template <class GenerationType>
  std::int64_t count_round(EngineStats& all, const GenerationType& generation, double now) {
    const Stats& stats = generation.stats();
    // A request without generated tokens ends without reading its last token.
    const bool complete = !generation.going() &&
                          (stats.finish_reason == FinishReason::length || stats.finish_reason == FinishReason::context);
    const std::int64_t read =
        complete ? stats.prompt_tokens : std::min<std::int64_t>(generation.sequence().length(), stats.prompt_tokens);
    const std::int64_t prompt = std::max<std::int64_t>(read - prompt_, 0);  // negative after a preemption
    const std::int64_t emitted = stats.emitted - emitted_, accepted = stats.accepted - accepted_;
    if (emitted > 0) add_tokens(all, emitted, now);
    all.prompt_tokens += prompt;
    all.generation_tokens += emitted;
    all.drafts += stats.drafted > drafted_;
    all.drafted += stats.drafted - drafted_;
    all.accepted += accepted;
    if (all.accepted_at_depth.size() < stats.accepted_at_depth.size())
      all.accepted_at_depth.resize(stats.accepted_at_depth.size());
    for (std::int64_t depth = 0; depth < accepted; ++depth) ++all.accepted_at_depth[static_cast<std::size_t>(depth)];
    prompt_ += prompt;
    emitted_ = stats.emitted;
    drafted_ = stats.drafted;
    accepted_ = stats.accepted;
    return prompt + emitted;
  }

  void count_end(EngineStats& all, const Stats& stats, double now) const {
    ++all.finished;
    ++all.finished_by[static_cast<std::size_t>(stats.finish_reason)];
    all.draft_faults += !stats.disabled_reason.empty();
    if (!begun_) return;
    all.request_seconds.add(now - submitted_);
    all.queue_seconds.add(*begun_ - submitted_);
    all.inference_seconds.add(now - *begun_);
    all.request_prompt_tokens.add(static_cast<double>(stats.prompt_tokens));
    all.request_generation_tokens.add(static_cast<double>(stats.emitted));
    all.request_preemptions.add(preemptions_);
    if (!first_token_) return;
    all.prefill_seconds.add(*first_token_ - *begun_);
    all.decode_seconds.add(last_token_ - *first_token_);
    if (emitted_ > 1) {
      all.seconds_per_token.add((last_token_ - *first_token_) / static_cast<double>(emitted_ - 1));
    }
  }

 private:
  void add_tokens(EngineStats& all, std::int64_t emitted, double now) {
    if (first_token_) {
      all.token_seconds.add((now - last_token_) / static_cast<double>(emitted), emitted);
    } else {
      first_token_ = now;
      all.first_token_seconds.add(now - submitted_);
      all.token_seconds.add(0, emitted - 1);
    }
    last_token_ = now;
  }

  double submitted_;
  std::optional<double> begun_, first_token_;
  double last_token_ = 0;
  int preemptions_ = 0;
  std::int64_t prompt_ = 0, emitted_ = 0, drafted_ = 0, accepted_ = 0;  // amounts included in the statistics
};

}}}
