#include "api/llama_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "api/choice.hpp"
#include "api/completion_logprobs.hpp"
#include "api/timings.hpp"

namespace serve {

namespace {

/// A text so far.
struct Said {
  std::string text;
  std::vector<slm::AnsweredToken> tokens;
  Stopwatch time{};
};

/// The members of `whole` that the paths name, each under its path.
OrderedJson selected(const OrderedJson& whole, const std::vector<std::string>& paths) {
  OrderedJson kept = OrderedJson::object();
  for (const std::string& path : paths) {
    const OrderedJson* found = &whole;
    std::size_t begin = 0;
    while (found != nullptr && begin <= path.size()) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const auto member = found->is_object() ? found->find(path.substr(begin, end - begin)) : found->end();
      found = member == found->end() ? nullptr : &*member;
      begin = end + 1;
    }
    if (found != nullptr) kept[path] = *found;
  }
  return kept;
}

class LlamaExchange final : public Exchange {
 public:
  LlamaExchange(LlamaRequest request, const ServedModel& model, Service& service, const slm::CancelToken& cancel,
                const std::function<void()>& wake)
      : request_(std::move(request)),
        model_(model),
        choices_(begin_choices(request_.text, model_, service, cancel, wake)),
        said_(choices_.size()) {}

  void poll(HttpOutput& out) override {
    const bool streams = request_.text.stream;
    bool over = true;
    try {
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        if (i == 0) add_reports(false);
        while (auto delta = choices_[i]->next()) {
          if (i == 0) add_reports(true);
          add(i, *delta);
        }
        over = over && choices_[i]->over();
      }
    } catch (const Refusal& refusal) {
      if (!streams || (!open_ && request_.text.asked.adapter)) return answer_refusal(out, refusal);
      write(error_json(refusal));
      over = true;
    }
    if (!streams) {
      if (over) out.answer(200, "application/json", slm::json_text(answers()));
      return;
    }
    if (!over && request_.text.asked.lacks_adapter()) return;
    if (!std::exchange(open_, true)) {
      out.begin(200, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    }
    if (!events_.empty()) out.write(std::exchange(events_, {}));
    if (over) out.end();
  }

  void idle(HttpOutput& out) override {
    if (open_) out.write(": keep-alive\n\n");
  }

 private:
  void write(const OrderedJson& event) { events_ += "data: " + slm::json_text(event) + "\n\n"; }

  /// How far the prompt is read; complete: up to its end.
  void add_reports(bool complete) {
    const TextRequest& text = request_.text;
    if (text.progress == nullptr) return;
    for (const PromptProgress::Report& report : text.progress->take(complete)) {
      OrderedJson event{
          {"index", 0},           {"content", ""},         {"tokens", OrderedJson::array()},  {"stop", false},
          {"id_slot", text.slot}, {"tokens_predicted", 0}, {"tokens_evaluated", report.total}};
      add_progress(event, report, text.timings_per_token);
      write(event);
    }
  }

  void add(std::size_t i, const Delta& delta) {
    Said& said = said_[i];
    said.time.add(delta.tokens.size());
    said.text += delta.text;
    said.tokens.insert(said.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (!request_.text.stream) return;
    if (!delta.tokens.empty() || !delta.text.empty()) write(part(i, delta));
    if (delta.last) write(kept(end_of(i, "", {})));
  }

  OrderedJson kept(OrderedJson answer) const {
    return request_.response_fields.empty() ? answer : selected(answer, request_.response_fields);
  }

  /// One answer, or a list of several.
  OrderedJson answers() const {
    OrderedJson list = OrderedJson::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) list.push_back(kept(end_of(i, said_[i].text, said_[i].tokens)));
    return list.size() == 1 ? std::move(list[0]) : list;
  }

  static OrderedJson ids_of(const std::vector<slm::AnsweredToken>& tokens) {
    OrderedJson ids = OrderedJson::array();
    for (const slm::AnsweredToken& token : tokens) ids.push_back(token.token);
    return ids;
  }

  OrderedJson probability(slm::Token token, double logprob) const {
    OrderedJson bytes = OrderedJson::array();
    for (const char byte : model_.tokenizer.bytes(token)) bytes.push_back(static_cast<unsigned char>(byte));
    OrderedJson json{{"id", token}, {"token", serve::text_of(model_.tokenizer, token)}, {"bytes", std::move(bytes)}};
    if (request_.text.sampled_logprobs) {
      json["prob"] = std::exp(logprob);
    } else {
      json["logprob"] = number(logprob);
    }
    return json;
  }

  /// `completion_probabilities`, where they are asked for.
  void add_probabilities(OrderedJson& json, const std::vector<slm::AnsweredToken>& tokens) const {
    if (!request_.text.logprobs || *request_.text.logprobs == 0) return;
    const bool sampled = request_.text.sampled_logprobs;
    OrderedJson list = OrderedJson::array();
    for (const slm::AnsweredToken& token : tokens) {
      OrderedJson entry = probability(token.token, sampled ? token.sampled_logprob : token.logprob);
      OrderedJson top = OrderedJson::array();
      for (const slm::TokenLogprob& other : sampled ? token.sampled_top : token.top) {
        if (!sampled || std::exp(other.logprob) > 0) top.push_back(probability(other.token, other.logprob));
      }
      entry[sampled ? "top_probs" : "top_logprobs"] = std::move(top);
      list.push_back(std::move(entry));
    }
    json["completion_probabilities"] = std::move(list);
  }

  /// An event before the last.
  OrderedJson part(std::size_t i, const Delta& delta) const {
    const TextRequest& text = request_.text;
    OrderedJson json{{"index", i},
                     {"content", delta.text},
                     {"tokens", ids_of(delta.tokens)},
                     {"stop", false},
                     {"id_slot", text.slot},
                     {"tokens_predicted", said_[i].tokens.size()},
                     {"tokens_evaluated", text.prompts[choices_[i]->prompt()].size()}};
    if (text.timings_per_token) json["timings"] = timings(i);
    add_probabilities(json, delta.tokens);
    return json;
  }

  OrderedJson timings(std::size_t i) const {
    const Choice& choice = *choices_[i];
    return timings_of(said_[i].time, request_.text.prompts[choice.prompt()].size(), choice.stats());
  }

  /// The whole answer, or the last event.
  OrderedJson end_of(std::size_t i, const std::string& content, const std::vector<slm::AnsweredToken>& tokens) const {
    const Choice& choice = *choices_[i];
    const std::vector<slm::Token>& prompt = request_.text.prompts[choice.prompt()];
    const bool cut = choice.finish_reason() == std::string_view("length"), word = choice.stop_reason().is_string();
    const std::size_t length = prompt.size() + static_cast<std::size_t>(choice.tokens());
    OrderedJson json{{"index", i},
                     {"content", content},
                     {"tokens", request_.return_tokens ? ids_of(tokens) : OrderedJson::array()},
                     {"id_slot", request_.text.slot},
                     {"stop", true},
                     {"model", request_.text.asked.name},
                     {"tokens_predicted", choice.tokens()},
                     {"tokens_evaluated", prompt.size()},
                     {"tokens_cached", choice.stats().reused_tokens},
                     {"generation_settings", generation_settings(request_, i, model_)},
                     {"prompt", model_.tokenizer.decode(prompt, false)},
                     {"has_new_line", said_[i].text.find('\n') != std::string::npos},
                     {"truncated", cut && length >= static_cast<std::size_t>(model_.info.context)},
                     {"stop_type", cut    ? "limit"
                                   : word ? "word"
                                          : "eos"},
                     {"stopping_word", word ? choice.stop_reason() : OrderedJson("")},
                     {"timings", timings(i)}};
    add_probabilities(json, tokens);
    return json;
  }

  LlamaRequest request_;
  const ServedModel& model_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::vector<Said> said_;  // by each choice
  bool open_ = false;
  std::string events_;  // to be written
};

}  // namespace

std::unique_ptr<Exchange> answer_llama(LlamaRequest request, const ServedModel& model, Service& service,
                                       const slm::CancelToken& cancel, const std::function<void()>& wake) {
  return std::make_unique<LlamaExchange>(std::move(request), model, service, cancel, wake);
}

}  // namespace serve
