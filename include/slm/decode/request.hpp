// What a decoder is asked: a request, how to speculate, and the checks on both.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/draft_length.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/sink.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Which log-probabilities come with each token; each costs a pass over the vocabulary.
struct Logprobs {
  bool prompt = false;   // raw ones of the prompt's tokens but for the first, which has nothing before it: see
                         // Request::scored
  bool raw = false;      // of the model's own distribution: the softmax of its logits, nothing edited
  bool sampled = false;  // of the distribution that the token was drawn from; when decoding greedily, of the softmax of
                         // the logits behind penalties and adjust_logits
  int top = 0;           // alternatives of each kind that is asked for, likeliest first

  bool any() const { return raw || sampled; }
};

/// How the hidden states of a prompt, as the head reads them, become one vector.
enum class Pooling { mean, last };

/// One text to be continued, or to be told of.
struct Request {
  std::vector<Token> prompt;
  Sampling sampling = {};
  Logprobs logprobs = {};
  std::optional<Pooling> pooling{};    // the prompt is embedded, and no token generated
  AdapterRef adapter = nullptr;        // of the target; see load_adapter()
  AdapterRef draft_adapter = nullptr;  // of the draft's model
  std::uint64_t group = 0;             // pages of keys and values are shared inside a group only; see Sequence
  std::stop_token cancel = {};         // takes effect before the next step, in prompts too: FinishReason::cancelled
  /// Called after each step over the prompt with the tokens read and those to be read before the first round, which is
  /// all but the last. Optional.
  std::function<void(std::size_t read, std::size_t of)> progress = {};
  /// Called once with each token of the prompt that Logprobs::prompt asks for, in order. All of them are read for it,
  /// whatever is in the cache. An engine's answer holds them where this is empty, and `embedded` likewise.
  std::function<void(const GeneratedToken&)> scored = {};
  /// Called with what `pooling` asks for, [hidden].
  std::function<void(std::span<const float>)> embedded = {};
};

/// How to speculate.
struct Speculation {
  int draft_tokens = 4;  // tokens drafted per round, when `draft length` says nothing else
  std::optional<draft_length::Policy> draft_length{};  // Fixed, Heuristic, Confidence or ThroughputAdaptive
  /// While the target verifies, a draft's model goes on as if it had guessed everything right: the next round's draft
  /// is there when it had, and the text is what it is without. Costs time where both compute on one device.
  bool overlap = false;
  int plain_step_every = 0;         // every so many rounds do not draft, to time plain steps; 0: never
  std::function<double()> clock{};  // seconds since any moment; empty: the steady clock
  /// Told why a request goes on without its draft (Stats::disabled_reason). Optional.
  std::function<void(std::string_view reason)> on_draft_fault{};
};

/// Tokens of a prompt that are read in one step, so that a long prompt holds up neither cancellation nor the texts
/// beside it for long.
inline constexpr std::size_t prompt_chunk = 512;

inline draft_length::Policy policy_of(const Speculation& speculation) {
  draft_length::Policy policy = speculation.draft_length.value_or(draft_length::Fixed{speculation.draft_tokens});
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

/// Throws Error unless the model can go on from this prompt.
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

/// Throws Error unless the model can answer this.
inline void check_request(const Request& request, const ModelInfo& model) {
  check_prompt(request.prompt, model);
  check_adapter(request.adapter, model);
  if (model.headless && (!request.pooling || request.logprobs.prompt)) throw no_head(model.name);
  validate(request.sampling, model.vocab);
  if (request.logprobs.top < 0 || request.logprobs.top > model.vocab) {
    throw Error("sampling.out-of-range",
                text("Logprobs::top is ", request.logprobs.top, ", expected 0 to the vocabulary's ", model.vocab),
                "Set top inside that range");
  }
  if (request.pooling && request.logprobs.prompt) {
    throw Error("decode.embedding-and-logprobs",
                "one request asks for the embedding and the log-probabilities of its prompt", "Make two requests");
  }
}

/// Rows of logits that may be asked of prompts in one step, so that they take no more than some 64 MiB.
inline std::size_t most_scored_rows(const ModelInfo& model) {
  return std::max<std::size_t>(16, (std::size_t{16} << 20) / static_cast<std::size_t>(model.vocab));
}

/// For a row of logits that is not usable, behind so many tokens.
inline Error non_finite_logits(const ModelInfo& model, std::size_t tokens) {
  return Error(
      "decode.non-finite-logits",
      text("the logits of ", model.name, " after ", tokens, " tokens hold NaN or infinity, or leave no token possible"),
      "Check the target's weights, and that adjust_logits leaves at least one token");
}

/// Whether generation, and drafting, ends with this token.
class EndTokens {
 public:
  void start(const ModelInfo& model, bool ignore_model, std::span<const Token> stops) {
    ends_ = ignore_model ? std::span<const Token>{} : std::span<const Token>{model.end_tokens};
    stops_ = stops;
  }
  bool is_end(Token token) const { return contains(ends_, token); }
  bool is_stop(Token token) const { return contains(stops_, token); }
  bool any(Token token) const { return is_end(token) || is_stop(token); }

 private:
  static bool contains(std::span<const Token> tokens, Token token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  }

  std::span<const Token> ends_;
  std::span<const Token> stops_;
};

/// Cuts a draft after the first token that would end the text, and before the first that cannot be used. Says what was
/// wrong with it, if anything.
inline std::string cut_draft(std::vector<Token>& draft, int most, int vocab, const EndTokens& ends) {
  std::string wrong;
  if (draft.size() > static_cast<std::size_t>(most)) {
    wrong = text("the draft proposed ", draft.size(), " tokens, at most ", most, " were asked for");
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
