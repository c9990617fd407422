// Reply: the answer to a chat in the form of an API whose streams have named events.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "api/choice.hpp"
#include "slm/core/cancel.hpp"

namespace serve {

/// Takes the parts of an answer, and writes events. A whole answer is the state after the last part.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual void begin() = 0;
  virtual void add(const ChoicePart& part) = 0;
  virtual void end(const Choice& choice) = 0;
  /// How far the prompt is read. Some APIs do not report it, and answers of some have no times.
  virtual void report(const PromptProgress::Report&, bool /*with_timings*/) {}
  /// The times of the answer so far, for the next events.
  virtual void set_timings(OrderedJson) {}
  /// The stream ends by an error.
  virtual void fail(const Refusal& refusal) = 0;
  /// The whole answer, after end().
  virtual const OrderedJson& whole() const = 0;
  /// An answer that has not begun.
  virtual OrderedJson error(const Refusal& refusal) const = 0;
  /// Keeps a silent stream open.
  virtual std::string ping() const { return ": keep-alive\n\n"; }

  std::string take_events() { return std::exchange(events_, {}); }

 protected:
  /// An event is named by its type.
  void event(const OrderedJson& json) {
    events_ +=
        slm::text("event: ", json["type"].get_ref<const std::string&>(), "\ndata: ", slm::json_text(json), "\n\n");
  }

 private:
  std::string events_;
};

/// Hands the request, a chat with one choice, to the engine. Throws Refusal.
std::unique_ptr<Exchange> answer_reply(TextRequest request, std::unique_ptr<Reply> reply, const ServedModel& model,
                                       Service& service, const slm::CancelToken& cancel,
                                       const std::function<void()>& wake);

}  // namespace serve
