#include "api/choice.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "http/random_hex.hpp"

namespace serve {

namespace {

using Kind = slm::AnswerPart::Kind;

std::vector<std::string> all_stops(const ServedModel& model, const TextRequest& request) {
  std::vector<std::string> stops = request.stops;
  if (request.chat) stops.insert(stops.end(), model.chat->stops.strings.begin(), model.chat->stops.strings.end());
  return stops;
}

/// A call id that every template accepts: some want nine letters or digits.
std::string new_call_id() { return random_hex().substr(0, 9); }

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

Choice::Choice(const ServedModel& model, const TextRequest& request, std::size_t index, slm::Answer answer)
    : request_(request),
      prompt_(index / static_cast<std::size_t>(request.n)),
      answer_(std::move(answer)),
      stream_(
          model.tokenizer, request.prompts[prompt_],
          [this, &model](std::string_view piece) {
            if (request_.chat) piece = model.chat->spoken(piece, begun_);
            text_ += piece;
          },
          all_stops(model, request), static_cast<std::size_t>(request.min_tokens),
          request.chat && request.separates_reasoning ? model.chat->tags : std::vector<slm::Token>{}),
      reasons_(request.reasoning == Reasoning::begun) {
  const bool keeps = index == 0 && model.slots != nullptr && model.slots->has(request.slot);
  if (keeps && !request.asked.adapted) {
    slots_ = model.slots;
    slot_tokens_ = request.prompts[prompt_];
  }
  if (!request.chat || !request.separates_reasoning) return;
  parser_.emplace(model.chat->answer, slm::AnswerOptions{.tools = request.tools.list,
                                                         .reads_calls = request.tools.choice != ToolChoice::none,
                                                         .begins_in_reasoning = reasons_});
  if (request.tools.choice != ToolChoice::required) return;
  const slm::AnswerFormat& format = model.chat->answer;
  const bool reasons = request.reasoning != Reasoning::none;
  if (auto form = slm::CallForm::of(model.chat->form, format)) {
    call_.emplace(std::move(*form), request.tools.names, reasons ? format.reasoning_begin() : std::string_view{},
                  format.reasoning_end(), reasons_);
  }
}

std::optional<slm::AnsweredToken> Choice::fetch() {
  try {
    for (;;) {
      auto token = answer_.try_next();
      if (!token || !ended()) return token;  // what comes behind the end is dropped
    }
  } catch (const slm::Error& error) {
    if (ended()) return std::nullopt;
    throw request_.asked.refusal_for(error);
  } catch (const std::exception&) {
    if (ended()) return std::nullopt;
    throw failed_by("serve.engine-fault");
  }
}

void Choice::take(const slm::AnsweredToken& token) {
  ++tokens_;
  if (slots_ != nullptr) slot_tokens_.push_back(token.token);
  if (contains(request_.stop_tokens, token.token)) {
    stop_reason_ = token.token;
    if (!request_.include_stop) return;
  }
  if (stream_(token.token)) return;
  answer_.stop();
  const std::string& found = stream_.stop_string();
  if (contains(request_.stops, found)) stop_reason_ = found;
  if (request_.include_stop) text_ += found;
}

std::optional<Delta> Choice::next() {
  if (over_) return std::nullopt;
  Delta delta;
  for (;;) {
    if (!held_) held_ = fetch();
    if (!held_) break;
    if (delta.tokens.empty()) delta.drafted = held_->drafted;
    if (held_->drafted != delta.drafted) break;
    take(*held_);
    if (parser_) parse(std::exchange(text_, {}));
    if (reasons_) ++reasoning_tokens_;
    delta.tokens.push_back(std::move(*held_));
    held_.reset();
    if (request_.token_deltas) {
      held_ = fetch();
      break;
    }
  }
  if (!held_ && answer_.over()) {
    fetch();  // throws what ended it meanwhile
    finish();
    delta.last = true;
  }
  if (request_.chat && !parser_ && !text_.empty()) parts_ = {{{.text = std::exchange(text_, {})}}};
  delta.text = std::exchange(text_, {});
  delta.parts = std::exchange(parts_, {});
  if (delta.tokens.empty() && !delta.last) return std::nullopt;
  return delta;
}

void Choice::parse(const std::string& piece) {
  const bool was_begun = call_ && call_->begun();
  if (call_) call_->push(piece);
  parse(parser_->push(piece));
  if (!call_ || !call_->begun()) return;
  const std::string arguments = call_->take();
  if (was_begun && !parts_.empty()) {
    parts_.back().call.arguments += arguments;
  } else if (was_begun) {
    if (!arguments.empty())
      parts_.push_back({{.kind = Kind::call, .call = {.name = {}, .arguments = arguments}}, true});
  } else {
    add_call({{.kind = Kind::call, .call = {.name = call_->name(), .arguments = arguments}}});
  }
}

void Choice::add_call(ChoicePart part) {
  ++calls_;
  reasons_ = false;
  part.call.id = new_call_id();
  parts_.push_back(std::move(part));
}

void Choice::parse(std::vector<slm::AnswerPart> parts) {
  for (slm::AnswerPart& part : parts) {
    if (ended_) return;
    const bool is_call = part.kind == Kind::call;
    reasons_ = part.kind == Kind::reasoning;
    if (is_call) ended_ = !request_.tools.parallel;
    const bool is_read = call_ && call_->begun() && part.kind != Kind::reasoning;
    if (is_read) continue;  // by call_
    if (is_call) {
      add_call({std::move(part)});
    } else if (!parts_.empty() && parts_.back().kind == part.kind) {
      parts_.back().text += part.text;
    } else {
      parts_.push_back({std::move(part)});
    }
  }
  if (ended_) answer_.stop();
}

void Choice::finish() {
  stats_ = answer_.stats();
  if (!ended() &&
      (stats_.finish_reason == slm::FinishReason::cancelled || stats_.finish_reason == slm::FinishReason::deadline)) {
    throw shutting_down();
  }
  stream_.finish();
  if (parser_ && !ended_) {
    parse(std::exchange(text_, {}));
    if (!ended_) parse(parser_->finish());
  }
  over_ = true;
  if (slots_ != nullptr) slots_->keep(request_.slot, {std::move(slot_tokens_), request_.tenant});
}

const char* Choice::finish_reason() const {
  const bool cut =
      stats_.finish_reason == slm::FinishReason::length || stats_.finish_reason == slm::FinishReason::context;
  if (cut && !ended()) return "length";
  return calls_ > 0 ? "tool_calls" : "stop";
}

std::vector<std::unique_ptr<Choice>> begin_choices(TextRequest& request, const ServedModel& model, Service& service,
                                                   const slm::CancelToken& cancel, const std::function<void()>& wake) {
  bring(request.asked, model);
  if (request.return_progress) request.progress = std::make_shared<PromptProgress>(request.prompts.front().size());
  std::vector<std::unique_ptr<Choice>> choices;
  for (std::size_t i = 0; i < request.choices(); ++i) {
    slm::Request one = request.choice(i, model);
    one.cancel = cancel;
    if (i == 0 && request.progress) {
      one.progress = [progress = request.progress, wake](std::size_t read, std::size_t of) {
        progress->report(read, of);
        if (wake) wake();
      };
    }
    try {
      slm::Answer answer =
          service.submit(std::move(one), {.priority = request.priority, .adapter = request.asked.adapter}, wake);
      choices.push_back(std::make_unique<Choice>(model, request, i, std::move(answer)));
    } catch (const slm::Error& error) {
      throw refused_by(error);
    }
  }
  return choices;
}

}  // namespace serve
