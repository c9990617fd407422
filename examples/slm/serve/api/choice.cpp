#include "api/choice.hpp"

#include <algorithm>
#include <new>

namespace serve {

namespace {

std::vector<std::string> all_stops(const ServedModel& model, const TextRequest& request) {
  std::vector<std::string> stops = request.stops;
  if (request.chat) stops.insert(stops.end(), model.chat->stops.strings.begin(), model.chat->stops.strings.end());
  return stops;
}

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
          all_stops(model, request), static_cast<std::size_t>(request.min_tokens)) {}

std::optional<slm::AnsweredToken> Choice::fetch() {
  try {
    for (;;) {
      auto token = answer_.try_next();
      if (!token || !stream_.stopped()) return token;  // what comes behind a stop string is dropped
    }
  } catch (const slm::Error& error) {
    if (stream_.stopped()) return std::nullopt;
    throw request_.asked.refusal_for(error);
  } catch (const std::exception&) {
    if (stream_.stopped()) return std::nullopt;
    throw failed_by("serve.engine-fault");
  }
}

void Choice::take(const slm::AnsweredToken& token) {
  ++tokens_;
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
    delta.tokens.push_back(std::move(*held_));
    held_.reset();
  }
  if (!held_ && answer_.over()) {
    fetch();  // throws what ended it meanwhile
    finish();
    delta.last = true;
  }
  delta.text = std::exchange(text_, {});
  if (delta.tokens.empty() && !delta.last) return std::nullopt;
  return delta;
}

void Choice::finish() {
  stats_ = answer_.stats();
  if (!stream_.stopped() &&
      (stats_.finish_reason == slm::FinishReason::cancelled || stats_.finish_reason == slm::FinishReason::deadline)) {
    throw shutting_down();
  }
  stream_.finish();
  over_ = true;
}

const char* Choice::finish_reason() const {
  const bool cut =
      stats_.finish_reason == slm::FinishReason::length || stats_.finish_reason == slm::FinishReason::context;
  return cut && !stream_.stopped() ? "length" : "stop";
}

}  // namespace serve
