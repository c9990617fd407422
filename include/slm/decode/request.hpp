// Request and Speculation: the input of a decoder, and their validation.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/cancel.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/draft_length.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/sink.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Which log-probabilities to report with each token. Each kind costs a pass over the vocabulary.
struct Logprobs {
  bool prompt = false;   // raw log-probabilities of prompt tokens except the first; see Request::scored
  bool raw = false;      // of the model's own distribution: the softmax of unedited logits
  bool sampled = false;  // of the distribution that the token was drawn from; if greedy: of the softmax after penalties
                         // and adjust_logits
  int top = 0;           // number of alternatives per kind, most likely first

  bool any() const { return raw || sampled; }
};

/// How a prompt's final hidden states are combined into one vector.
enum class Pooling { mean, last };

/// A text to continue, score or embed.
struct Request {
  std::vector<Token> prompt;
  Sampling sampling = {};
  Logprobs logprobs = {};
  ConstraintRef constraint = nullptr;  // what the answer may be; see constrain() in slm/grammar.hpp
  std::optional<Pooling> pooling{};    // set: embed the prompt and generate no token
  AdapterRef adapter = nullptr;        // target's adapter; see load_adapter()
  AdapterRef draft_adapter = nullptr;  // draft model's adapter
  std::uint64_t tenant = 0;            // KV cache pages are shared inside a tenant only; see Sequence
  CancelToken cancel = {};  // takes effect before the next step, also during the prompt: FinishReason::cancelled
  /// Optional. Called after each step over the prompt, by an engine also before the first one, with the tokens that the
  /// cache holds. read: tokens read, fewer again after a preemption. of: tokens to read before the first round, all but
  /// the last.
  std::function<void(std::size_t read, std::size_t of)> progress = {};
  /// Optional. Called once per prompt token that Logprobs::prompt covers, in order. All of these are computed, whatever
  /// the cache holds. If empty, an engine stores the results in its answer; likewise `embedded`.
  std::function<void(const GeneratedToken&)> scored = {};
  /// Called with the embedding that `pooling` selects, [hidden].
  std::function<void(std::span<const float>)> embedded = {};
};

/// Settings of speculative decoding.
struct Speculation {
  std::optional<int> draft_tokens{};                   // the same as the draft length Fixed{draft_tokens}
  std::optional<draft_length::Policy> draft_length{};  // Adaptive, Fixed, Heuristic or Confidence
  /// While the target verifies, the draft model continues, assuming full acceptance. If that holds, the next draft is
  /// ready. The output is unchanged. Slower if both models compute on one device.
  bool overlap = false;
  int plain_step_every = 0;         // every n-th round is a plain step, to measure its time; 0: never
  std::function<double()> clock{};  // time in seconds from any origin; empty: the steady clock
  /// Optional. Called with the reason if a request continues without its draft (Stats::disabled_reason).
  std::function<void(std::string_view reason)> on_draft_fault{};
};

/// Maximum prompt tokens per step, so that a long prompt does not delay cancellation or other sequences.
inline constexpr std::size_t prompt_chunk = 512;

/// The draft length. Without one: adaptive, or 4 tokens under rules whose text depends on the length (!may_drop).
inline draft_length::Policy policy_of(const Speculation& speculation, bool may_drop = true) {
  draft_length::Policy policy = draft_length::Fixed{4};
  if (may_drop) policy = draft_length::Adaptive{};
  if (speculation.draft_tokens) policy = draft_length::Fixed{*speculation.draft_tokens};
  if (speculation.draft_length) policy = *speculation.draft_length;
  if (policy.most() < 0 || policy.most() > most_draft_tokens) {
    throw Error("decode.bad-draft-length",
                text("the draft length is ", policy.most(), " tokens, expected 0 to ", most_draft_tokens),
                "Choose a draft length in that range; 2 to 8 is usual");
  }
  return policy;
}

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Throws Error unless the model can continue this prompt.
inline void check_prompt(std::span<const Token> prompt, const ModelInfo& model) {
  if (prompt.empty()) {
    throw Error("decode.empty-prompt", "the prompt has no tokens, expected at least one",
                "Begin with the tokenizer's beginning-of-text token");
  }
  if (prompt.size() > static_cast<std::size_t>(model.context)) {
    throw Error(
        "decode.prompt-too-long",
        text("the prompt has ", prompt.size(), " tokens, the context of ", model.name, " holds ", model.context),
        "Shorten the prompt, or load the model with a larger context (LoadOptions::context, --context)");
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < model.vocab) continue;
    throw Error("decode.token-out-of-range",
                text("token ", i, " of the prompt is ", prompt[i], ", the vocabulary of ", model.name,
                     " has the ids 0 to ", model.vocab - 1),
                "Encode the prompt with the target's tokenizer");
  }
}

/// Throws Error unless the model supports the request.
inline void check_request(const Request& request, const ModelInfo& model) {
  check_prompt(request.prompt, model);
  check_adapter(request.adapter, model);
  if (model.headless && (!request.pooling || request.logprobs.prompt)) throw no_head(model.name);
  validate(request.sampling, model.vocab);
  if (request.logprobs.top < 0 || request.logprobs.top > model.vocab) {
    throw Error("sampling.out-of-range",
                text("Logprobs::top is ", request.logprobs.top, ", expected 0 to the vocabulary's ", model.vocab),
                "Set top to a value in that range");
  }
  if (request.pooling && request.logprobs.prompt) {
    throw Error("decode.embedding-and-logprobs",
                "expected a request for the embedding or the log-probabilities of a prompt, found both",
                "Make two requests");
  }
}

/// Maximum rows of logits for prompts per step; limits their memory to about 64 MiB.
inline std::size_t most_scored_rows(const ModelInfo& model) {
  return std::max<std::size_t>(16, (std::size_t{16} << 20) / static_cast<std::size_t>(model.vocab));
}

/// The Error if a constraint permits no token after `tokens` tokens.
inline Error no_permitted_token(const ModelInfo& model, std::size_t tokens) {
  return Error("structured.no-token",
               text("the constraint permits no token of ", model.name, " after ", tokens, " tokens"),
               "Use a grammar whose bytes all have tokens");
}

/// The Error for an invalid row of logits after `tokens` tokens.
inline Error non_finite_logits(const ModelInfo& model, std::size_t tokens) {
  return Error("decode.non-finite-logits",
               text("expected valid logits of ", model.name, " after ", tokens,
                    " tokens, found NaN, infinity, or no possible token"),
               "Check the target's weights, and that adjust_logits leaves at least one token");
}

/// Tests whether a token ends generation and drafting.
class EndTokens {
 public:
  void start(const ModelInfo& model, bool ignore_model, std::span<const Token> stops) {
    ends_ = ignore_model ? std::span<const Token>{} : std::span<const Token>{model.end_tokens};
    stops_ = stops;
  }
  bool is_end(Token token) const { return contains(ends_, token); }
  bool is_stop(Token token) const { return contains(stops_, token); }
  bool any(Token token) const { return is_end(token) || is_stop(token); }
  /// The tokens that a constraint permits only behind a whole answer: model's end tokens, stop tokens without a text.
  std::vector<Token> ends_of(const OutputConstraint& constraint) const {
    std::vector<Token> tokens(ends_.begin(), ends_.end());
    std::copy_if(stops_.begin(), stops_.end(), std::back_inserter(tokens),
                 [&](Token stop) { return !constraint.has_text(stop); });
    return tokens;
  }

 private:
  static bool contains(std::span<const Token> tokens, Token token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  }

  std::span<const Token> ends_;
  std::span<const Token> stops_;
};

/// Truncates a draft after the first end token and before the first invalid id. Returns a description of the fault, or
/// an empty string.
inline std::string cut_draft(std::vector<Token>& draft, int most, int vocab, const EndTokens& ends) {
  std::string wrong;
  if (draft.size() > static_cast<std::size_t>(most)) {
    wrong = text("the draft proposed ", draft.size(), " tokens, but at most ", most, " were requested");
    draft.resize(static_cast<std::size_t>(most));
  }
  for (std::size_t i = 0; i < draft.size(); ++i) {
    if (draft[i] < 0 || draft[i] >= vocab) {
      wrong = text("the draft proposed id ", draft[i], ", outside the vocabulary");
      draft.resize(i);
    } else if (ends.any(draft[i])) {
      draft.resize(i + 1);
    }
  }
  return wrong;
}

}}
