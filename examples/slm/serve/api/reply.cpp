#include "api/reply.hpp"

#include <vector>

#include "api/timings.hpp"

namespace serve {

namespace {

class ReplyExchange final : public Exchange {
 public:
  ReplyExchange(TextRequest request, std::unique_ptr<Reply> reply, const ServedModel& model, Service& service,
                const slm::CancelToken& cancel, const std::function<void()>& wake)
      : request_(std::move(request)),
        reply_(std::move(reply)),
        choices_(begin_choices(request_, model, service, cancel, wake)) {}

  void poll(HttpOutput& out) override {
    Choice& choice = *choices_.front();
    if (!std::exchange(begun_, true)) reply_->begin();
    bool over = false;
    try {
      report(false);
      while (const auto delta = choice.next()) {
        report(true);
        time_.add(delta->tokens.size());
        if (request_.timings_per_token) {
          reply_->set_timings(timings_of(time_, request_.prompts.front().size(), choice.stats()));
        }
        for (const ChoicePart& part : delta->parts) reply_->add(part);
      }
      over = choice.over();
      if (over) reply_->end(choice);
    } catch (const Refusal& refusal) {
      const bool has_status = !open_ && (!request_.stream || request_.asked.adapter);  // the adapter cannot be brought
      if (has_status) {
        return out.answer(refusal.status, "application/json", slm::json_text(reply_->error(refusal)), refusal.headers);
      }
      reply_->fail(refusal);
      over = true;
    }
    if (!request_.stream) {
      if (over) out.answer(200, "application/json", slm::json_text(reply_->whole()));
      return;
    }
    if (!over && request_.asked.lacks_adapter()) return;
    const std::string events = reply_->take_events();
    if (!std::exchange(open_, true)) {
      out.begin(200, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    }
    if (!events.empty()) out.write(events);
    if (over) out.end();
  }

  void idle(HttpOutput& out) override {
    if (open_) out.write(reply_->ping());
  }

 private:
  void report(bool complete) {
    if (request_.progress == nullptr) return;
    for (const PromptProgress::Report& one : request_.progress->take(complete)) {
      reply_->report(one, request_.timings_per_token);
    }
  }

  TextRequest request_;
  std::unique_ptr<Reply> reply_;
  std::vector<std::unique_ptr<Choice>> choices_;
  Stopwatch time_;
  bool begun_ = false, open_ = false;
};

}  // namespace

std::unique_ptr<Exchange> answer_reply(TextRequest request, std::unique_ptr<Reply> reply, const ServedModel& model,
                                       Service& service, const slm::CancelToken& cancel,
                                       const std::function<void()>& wake) {
  return std::make_unique<ReplyExchange>(std::move(request), std::move(reply), model, service, cancel, wake);
}

}  // namespace serve
