// Choice: one of the texts that a request is answered with, as its tokens come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/call_reader.hpp"
#include "api/text_request.hpp"
#include "slm/core/cancel.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/text_stream.hpp"

namespace serve {

/// A part of a chat's answer. Ids of calls are unique.
struct ChoicePart : slm::AnswerPart {
  bool continues = false;  // the arguments of the call follow those of the last call
};

/// New text and tokens of a choice.
struct Delta {
  std::string text;               // of a completion
  std::vector<ChoicePart> parts;  // of a chat
  std::vector<slm::AnsweredToken> tokens;
  bool drafted = false;  // the tokens were proposed by the draft
  bool last = false;     // no delta follows
};

/// One choice of an answer. It is not movable. The request and the model must outlive it.
class Choice {
 public:
  Choice(const ServedModel& model, const TextRequest& request, std::size_t index, slm::Answer answer);
  ~Choice() { answer_.cancel(); }
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  /// Text and tokens since the last call, up to where drafted tokens begin or end. Throws Refusal if the answer
  /// failed.
  std::optional<Delta> next();

  bool over() const { return over_; }
  std::size_t prompt() const { return prompt_; }
  /// Log-probabilities of the prompt's tokens except the first; known after the first delta.
  std::vector<slm::AnsweredToken> prompt_logprobs() const { return answer_.prompt_logprobs(); }

  // The following are known after the end.
  const char* finish_reason() const;
  /// The stop string or token of the request that ended it, else null.
  const OrderedJson& stop_reason() const { return stop_reason_; }
  std::int64_t tokens() const { return tokens_; }
  /// The number of tokens up to the end of the reasoning.
  std::int64_t reasoning_tokens() const { return reasoning_tokens_; }
  const slm::Stats& stats() const { return stats_; }

 private:
  void take(const slm::AnsweredToken& token);
  std::optional<slm::AnsweredToken> fetch();
  /// A piece of a chat's text, or its end, becomes parts of the answer.
  void parse(const std::string& piece);
  void parse(std::vector<slm::AnswerPart> parts);
  void add_call(ChoicePart part);
  /// Whether the answer has ended, whatever tokens follow.
  bool ended() const { return ended_ || stream_.stopped(); }
  void finish();

  const TextRequest& request_;
  std::size_t prompt_;  // its number
  slm::Answer answer_;
  std::string text_;                         // not handed out yet
  std::vector<ChoicePart> parts_;            // not handed out yet
  bool begun_ = false;                       // some text has been seen
  slm::TextStream stream_;                   // writes into text_
  std::optional<slm::AnswerParser> parser_;  // of a chat
  std::optional<CallReader> call_;           // of a chat whose answer must be a call
  std::optional<slm::AnsweredToken> held_;   // fetched, and for the next delta
  std::int64_t tokens_ = 0, reasoning_tokens_ = 0;
  std::size_t calls_ = 0;
  bool reasons_ = false;  // the answer is in its reasoning
  bool ended_ = false;    // no text is wanted any more
  bool over_ = false;
  OrderedJson stop_reason_;
  slm::Stats stats_;
  std::shared_ptr<Slots> slots_;  // that keep the text; null: none
  std::vector<slm::Token> slot_tokens_;
};

/// Hands the request to the engine. The request, which gets its adapter, and the model must outlive the choices. Throws
/// Refusal.
std::vector<std::unique_ptr<Choice>> begin_choices(TextRequest& request, const ServedModel& model, Service& service,
                                                   const slm::CancelToken& cancel, const std::function<void()>& wake);

}  // namespace serve
