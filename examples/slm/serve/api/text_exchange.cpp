#include "api/text_exchange.hpp"

#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "api/choice.hpp"
#include "api/completion_logprobs.hpp"
#include "api/timings.hpp"
#include "http/random_hex.hpp"

namespace serve {

namespace {

OrderedJson chat_entry(const slm::Tokenizer& tokenizer, slm::Token token, double logprob) {
  OrderedJson bytes = OrderedJson::array();
  for (const char byte : tokenizer.bytes(token)) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text_of(tokenizer, token)}, {"logprob", number(logprob)}, {"bytes", std::move(bytes)}};
}

/// And as /v1/chat/completions has them: a list of tokens.
OrderedJson chat_logprobs(const slm::Tokenizer& tokenizer, const std::vector<slm::AnsweredToken>& tokens) {
  OrderedJson content = OrderedJson::array();
  for (const slm::AnsweredToken& token : tokens) {
    OrderedJson entry = chat_entry(tokenizer, token.token, token.logprob);
    OrderedJson top = OrderedJson::array();
    for (const slm::TokenLogprob& other : token.top) top.push_back(chat_entry(tokenizer, other.token, other.logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

OrderedJson statistics(const slm::Stats& stats) {
  return {{"acceptance_rate", stats.acceptance_rate()},
          {"tokens_per_step", stats.tokens_per_target_step()},
          {"drafted", stats.drafted},
          {"accepted", stats.accepted},
          {"steps", stats.rounds}};
}

OrderedJson call_json(const slm::ToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

/// The message of a whole answer.
OrderedJson message_of(const std::vector<ChoicePart>& parts) {
  slm::ParsedAnswer answer;
  for (const ChoicePart& part : parts) {
    if (part.continues) {
      answer.calls.back().arguments += part.call.arguments;
    } else {
      answer.add(part);
    }
  }
  const bool has_content = !answer.content.empty() || (answer.calls.empty() && answer.reasoning.empty());
  OrderedJson message{{"role", "assistant"},
                      {"content", has_content ? OrderedJson(answer.content) : OrderedJson()},
                      {"refusal", nullptr}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  for (const slm::ToolCall& call : answer.calls) message["tool_calls"].push_back(call_json(call));
  return message;
}

/// The common parts of whole answers and streams.
class TextExchange : public Exchange {
 public:
  TextExchange(TextRequest request, const ServedModel& model, Service& service, const slm::CancelToken& cancel,
               const std::function<void()>& wake)
      : request_(std::move(request)),
        model_(model),
        id_((request_.chat ? "chatcmpl-" : "cmpl-") + random_hex()),
        created_(static_cast<std::int64_t>(std::time(nullptr))),
        choices_(begin_choices(request_, model_, service, cancel, wake)),
        times_(choices_.size()) {}

 protected:
  const char* object() const {
    if (!request_.chat) return "text_completion";
    return request_.stream ? "chat.completion.chunk" : "chat.completion";
  }

  /// The members that every answer and every chunk of it begins with.
  OrderedJson frame() const {
    return {{"id", id_},
            {"object", object()},
            {"created", created_},
            {"model", request_.asked.name},
            {"system_fingerprint", request_.asked.fingerprint(model_)}};
  }

  OrderedJson usage() const {
    std::int64_t prompt = 0, answered = 0, cached = 0, reasoning = 0;
    for (const auto& tokens : request_.prompts) prompt += std::ssize(tokens);
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      answered += choices_[i]->tokens();
      reasoning += choices_[i]->reasoning_tokens();
      if (i % static_cast<std::size_t>(request_.n) == 0) cached += choices_[i]->stats().reused_tokens;
    }
    OrderedJson usage{{"prompt_tokens", prompt},
                      {"completion_tokens", answered},
                      {"total_tokens", prompt + answered},
                      {"prompt_tokens_details", {{"cached_tokens", cached}}}};
    if (request_.chat) usage["completion_tokens_details"]["reasoning_tokens"] = reasoning;
    return usage;
  }

  OrderedJson ids_of(const std::vector<slm::AnsweredToken>& tokens) const {
    OrderedJson ids = OrderedJson::array();
    for (const slm::AnsweredToken& token : tokens) ids.push_back(token.token);
    return ids;
  }

  OrderedJson timings(std::size_t i) const {
    const Choice& choice = *choices_[i];
    return timings_of(times_[i], request_.prompts[choice.prompt()].size(), choice.stats());
  }

  /// The text before a choice's own text.
  std::string echo(const Choice& choice) const {
    return request_.echoes.empty() ? std::string{} : request_.echoes[choice.prompt()];
  }

  /// The log-probabilities of the choice's next tokens; with its first ones those of the prompt, if that is echoed.
  OrderedJson logprobs_of(const Choice& choice, const std::vector<slm::AnsweredToken>& tokens, bool first,
                          CompletionLogprobs& lists) const {
    if (!request_.logprobs) return nullptr;
    if (request_.chat) return chat_logprobs(model_.tokenizer, tokens);
    if (first && !request_.echoes.empty()) {
      lists.add_prompt(request_.prompts[choice.prompt()].front(), choice.prompt_logprobs(), echo(choice));
    }
    lists.add(tokens);
    return lists.take();
  }

  TextRequest request_;
  const ServedModel& model_;
  std::string id_;
  std::int64_t created_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::vector<Stopwatch> times_;  // of each choice
};

class WholeExchange final : public TextExchange {
 public:
  template <class... Arguments>
  explicit WholeExchange(Arguments&&... arguments)
      : TextExchange(std::forward<Arguments>(arguments)...), said_(choices_.size()) {}

  void poll(HttpOutput& out) override {
    bool over = true;
    try {
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        collect(i);
        over = over && choices_[i]->over();
      }
    } catch (const Refusal& refusal) {
      return answer_refusal(out, refusal);
    }
    if (over) out.answer(200, "application/json", slm::json_text(whole()));
  }

 private:
  void collect(std::size_t i) {
    Delta& said = said_[i];
    while (auto delta = choices_[i]->next()) {
      times_[i].add(delta->tokens.size());
      said.text += delta->text;
      for (ChoicePart& part : delta->parts) said.parts.push_back(std::move(part));
      if (!request_.logprobs && !request_.return_token_ids) continue;
      for (slm::AnsweredToken& token : delta->tokens) said.tokens.push_back(std::move(token));
    }
  }

  OrderedJson whole() const {
    OrderedJson answer = frame();
    answer["choices"] = OrderedJson::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) answer["choices"].push_back(choice_json(i));
    answer["usage"] = usage();
    if (request_.chat && request_.return_token_ids) answer["prompt_token_ids"] = request_.prompts[0];
    if (request_.timings_per_token) answer["timings"] = timings(0);
    if (request_.verbose) answer["__verbose"]["prompt"] = model_.tokenizer.decode(request_.prompts[0], false);
    return answer;
  }

  OrderedJson choice_json(std::size_t i) const {
    const Choice& choice = *choices_[i];
    const Delta& said = said_[i];
    OrderedJson json{{"index", i}};
    if (request_.chat) {
      json["message"] = message_of(said.parts);
    } else {
      json["text"] = echo(choice) + said.text;
    }
    CompletionLogprobs lists(model_.tokenizer);
    json["logprobs"] = logprobs_of(choice, said.tokens, true, lists);
    json["finish_reason"] = choice.finish_reason();
    json["stop_reason"] = choice.stop_reason();
    if (request_.return_token_ids) {
      if (!request_.chat) json["prompt_token_ids"] = request_.prompts[choice.prompt()];
      json["token_ids"] = ids_of(said.tokens);
    }
    json["slm"] = {{"statistics", statistics(choice.stats())}};
    return json;
  }

  std::vector<Delta> said_;  // by each choice so far
};

class StreamExchange final : public TextExchange {
 public:
  template <class... Arguments>
  explicit StreamExchange(Arguments&&... arguments)
      : TextExchange(std::forward<Arguments>(arguments)...),
        begun_(choices_.size()),
        calls_(choices_.size()),
        logprobs_(choices_.size(), CompletionLogprobs(model_.tokenizer)) {}

  void poll(HttpOutput& out) override {
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
      if (over && request_.include_usage) {
        OrderedJson chunk = frame();
        chunk["choices"] = OrderedJson::array();
        chunk["usage"] = usage();
        if (request_.timings_per_token) chunk["timings"] = timings(0);
        add(chunk);
      }
    } catch (const Refusal& refusal) {
      if (!open_ && request_.asked.adapter) return answer_refusal(out, refusal);  // it could not be brought
      add(error_json(refusal));
      over = true;
    }
    if (!over && request_.asked.lacks_adapter()) return;
    if (!std::exchange(open_, true)) {
      out.begin(200, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    }
    if (over) events_ += "data: [DONE]\n\n";
    if (!events_.empty()) out.write(std::exchange(events_, {}));
    if (over) out.end();
  }

  void idle(HttpOutput& out) override {
    if (open_) out.write(": keep-alive\n\n");
  }

 private:
  void add(const OrderedJson& event) { events_ += "data: " + slm::json_text(event) + "\n\n"; }

  /// How far the prompt is read; complete: up to its end.
  void add_reports(bool complete) {
    if (request_.progress == nullptr) return;
    for (const PromptProgress::Report& report : request_.progress->take(complete)) {
      OrderedJson chunk = frame();
      chunk["choices"] = OrderedJson::array();
      add_progress(chunk, report, request_.timings_per_token);
      add(chunk);
    }
  }

  void add_choice(std::size_t i, OrderedJson choice) {
    OrderedJson chunk = frame();
    chunk["choices"] = OrderedJson::array({std::move(choice)});
    if (request_.usage_in_each) {
      chunk["usage"] = usage();
    } else if (request_.include_usage) {
      chunk["usage"] = nullptr;
    }
    if (request_.chat && request_.return_token_ids && !std::exchange(prompt_told_, true)) {
      chunk["prompt_token_ids"] = request_.prompts[0];
    }
    if (request_.timings_per_token && times_[i].tokens > 0) chunk["timings"] = timings(i);
    add(chunk);
  }

  void add(std::size_t i, const Delta& delta) {
    const Choice& choice = *choices_[i];
    const bool first = !begun_[i];
    begun_[i] = true;
    if (first && request_.chat) {
      add_choice(i, {{"index", i},
                     {"delta", {{"role", "assistant"}, {"content", nullptr}}},
                     {"logprobs", nullptr},
                     {"finish_reason", nullptr}});
    }
    times_[i].add(delta.tokens.size());
    std::vector<OrderedJson> said = request_.chat ? chat_deltas(i, delta) : texts(choice, delta, first);
    if (said.empty() && (request_.logprobs || request_.return_token_ids)) said = {empty_delta()};
    if (delta.last && (said.empty() || request_.chat))
      said.push_back(empty_delta());  // a chat ends with an empty delta
    for (std::size_t k = 0; k < said.size(); ++k) {
      OrderedJson json{{"index", i}};
      json.update(said[k]);
      const bool ends = delta.last && k + 1 == said.size();
      json["logprobs"] = nullptr;
      if (k == 0) json["logprobs"] = logprobs_of(choice, delta.tokens, first, logprobs_[i]);
      json["finish_reason"] = ends ? OrderedJson(choice.finish_reason()) : OrderedJson();
      if (ends) json["stop_reason"] = choice.stop_reason();
      if (request_.return_token_ids) {
        if (k == 0 && first && !request_.chat) json["prompt_token_ids"] = request_.prompts[choice.prompt()];
        json["token_ids"] = k == 0 ? ids_of(delta.tokens) : OrderedJson::array();
      }
      if (ends) json["slm"]["statistics"] = statistics(choice.stats());
      if (delta.drafted) json["slm"]["drafted"] = true;
      add_choice(i, std::move(json));
    }
  }

  OrderedJson empty_delta() const {
    if (request_.chat) return {{"delta", OrderedJson::object()}};
    return {{"text", ""}};
  }

  std::vector<OrderedJson> texts(const Choice& choice, const Delta& delta, bool first) const {
    const std::string text = (first ? echo(choice) : std::string{}) + delta.text;
    if (text.empty()) return {};
    return {{{"text", text}}};
  }

  /// The deltas of a chat: a call's name precedes its arguments.
  std::vector<OrderedJson> chat_deltas(std::size_t i, const Delta& delta) {
    std::vector<OrderedJson> deltas;
    const auto add_delta = [&deltas](const char* name, OrderedJson value) {
      deltas.push_back({{"delta", {{name, std::move(value)}}}});
    };
    for (const ChoicePart& part : delta.parts) {
      if (part.kind != slm::AnswerPart::Kind::call) {
        add_delta(part.kind == slm::AnswerPart::Kind::content ? "content" : "reasoning_content", part.text);
        continue;
      }
      if (!part.continues) ++calls_[i];
      const std::size_t index = calls_[i] - 1;
      OrderedJson begin{{"index", index}}, arguments{{"index", index}};
      begin.update(call_json(part.call));
      begin["function"]["arguments"] = "";
      arguments["function"]["arguments"] = part.call.arguments;
      if (!part.continues) add_delta("tool_calls", OrderedJson::array({std::move(begin)}));
      if (!part.call.arguments.empty()) add_delta("tool_calls", OrderedJson::array({std::move(arguments)}));
    }
    return deltas;
  }

  bool open_ = false, prompt_told_ = false;
  std::vector<bool> begun_;         // choices that have said something
  std::vector<std::size_t> calls_;  // of each choice so far
  std::vector<CompletionLogprobs> logprobs_;
  std::string events_;  // to be written
};

}  // namespace

std::unique_ptr<Exchange> answer_text(TextRequest request, const ServedModel& model, Service& service,
                                      const slm::CancelToken& cancel, const std::function<void()>& wake) {
  if (request.stream) {
    return std::make_unique<StreamExchange>(std::move(request), model, service, cancel, wake);
  }
  return std::make_unique<WholeExchange>(std::move(request), model, service, cancel, wake);
}

}  // namespace serve
