#include "api/response_reply.hpp"

#include <cstdint>
#include <ctime>
#include <optional>
#include <utility>

#include "http/random_hex.hpp"

namespace serve {

namespace {

using Kind = slm::AnswerPart::Kind;

/// A part of the content of an item.
OrderedJson part_json(Kind kind, const std::string& text) {
  if (kind == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", OrderedJson::array()},
          {"logprobs", OrderedJson::array()}};
}

class ResponseReply final : public Reply {
 public:
  ResponseReply(const TextRequest& request, OrderedJson repeated)
      : prompt_(std::ssize(request.prompts.front())),
        response_{{"id", "resp_" + random_hex()},
                  {"object", "response"},
                  {"created_at", static_cast<std::int64_t>(std::time(nullptr))},
                  {"status", "in_progress"},
                  {"error", nullptr},
                  {"incomplete_details", nullptr},
                  {"model", request.asked.name},
                  {"output", OrderedJson::array()},
                  {"temperature", request.sampling.temperature},
                  {"top_p", request.sampling.top_p}} {
    response_.update(repeated);
  }

  void begin() override {
    tell_response("created");
    tell_response("in_progress");
  }

  void add(const ChoicePart& part) override {
    if (part.kind == Kind::call) return add_call(part);
    if (open_ != part.kind) {
      close("completed");
      open(part.kind);
    }
    text_ += part.text;
    OrderedJson delta = place();
    delta["delta"] = part.text;
    if (part.kind == Kind::content) delta["logprobs"] = OrderedJson::array();
    tell(part.kind == Kind::reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", delta);
  }

  void end(const Choice& choice) override {
    const bool is_cut = std::string_view(choice.finish_reason()) == "length";
    const char* const status = is_cut ? "incomplete" : "completed";
    close(status);
    if (is_cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response_["usage"] = {
        {"input_tokens", prompt_},
        {"input_tokens_details", {{"cached_tokens", choice.stats().reused_tokens}, {"cache_write_tokens", 0}}},
        {"output_tokens", choice.tokens()},
        {"output_tokens_details", {{"reasoning_tokens", choice.reasoning_tokens()}}},
        {"total_tokens", prompt_ + choice.tokens()}};
    if (!timings_.is_null()) response_["timings"] = timings_;
    finish(status);
  }

  void report(const PromptProgress::Report& report, bool with_timings) override {
    OrderedJson members{{"response", response_}};
    add_progress(members, report, with_timings);
    tell("response.in_progress", members);
  }

  void set_timings(OrderedJson timings) override { timings_ = std::move(timings); }

  void fail(const Refusal& refusal) override {
    close("incomplete");
    response_["error"] = {{"code", "server_error"}, {"message", refusal.what()}};
    finish("failed");
  }

  const OrderedJson& whole() const override { return response_; }
  OrderedJson error(const Refusal& refusal) const override { return error_json(refusal); }

 private:
  OrderedJson& output() { return response_["output"]; }

  void tell(const std::string& type, const OrderedJson& members) {
    OrderedJson json{{"type", type}};
    json.update(members);
    if (!timings_.is_null() && !json.contains("timings")) json["timings"] = timings_;
    json["sequence_number"] = told_++;
    event(json);
  }

  void tell_response(const std::string& state) { tell("response." + state, {{"response", response_}}); }

  void finish(const std::string& status) {
    response_["status"] = status;
    if (status == "completed") response_["completed_at"] = static_cast<std::int64_t>(std::time(nullptr));
    tell_response(status);
  }

  /// The members that name the last item, in events.
  OrderedJson item_place() { return {{"item_id", output().back()["id"]}, {"output_index", output().size() - 1}}; }

  /// And its only part.
  OrderedJson place() {
    OrderedJson json = item_place();
    json["content_index"] = 0;
    return json;
  }

  void tell_item(const std::string& type) {
    tell(type, {{"output_index", output().size() - 1}, {"item", output().back()}});
  }

  void tell_part(const std::string& type) {
    OrderedJson json = place();
    json["part"] = part_json(*open_, text_);
    tell(type, json);
  }

  void open(Kind kind) {
    open_ = kind;
    OrderedJson item = kind == Kind::reasoning
                           ? OrderedJson{{"type", "reasoning"}, {"id", "rs_" + random_hex()}}
                           : OrderedJson{{"type", "message"}, {"id", "msg_" + random_hex()}, {"role", "assistant"}};
    if (kind == Kind::reasoning) item["summary"] = OrderedJson::array();
    item["status"] = "in_progress";
    item["content"] = OrderedJson::array();
    output().push_back(std::move(item));
    tell_item("response.output_item.added");
    tell_part("response.content_part.added");
  }

  /// Ends the item that is open.
  void close(const char* status) {
    if (!open_) return;
    if (*open_ == Kind::call) {
      OrderedJson done = item_place();
      done["arguments"] = text_;
      done["name"] = output().back()["name"];
      tell("response.function_call_arguments.done", done);
      output().back()["arguments"] = text_;
    } else {
      close_part();
    }
    output().back()["status"] = status;
    tell_item("response.output_item.done");
    open_.reset();
    text_.clear();
  }

  void close_part() {
    OrderedJson done = place();
    done["text"] = text_;
    if (*open_ == Kind::content) done["logprobs"] = OrderedJson::array();
    tell(*open_ == Kind::reasoning ? "response.reasoning_text.done" : "response.output_text.done", done);
    tell_part("response.content_part.done");
    output().back()["content"].push_back(part_json(*open_, text_));
  }

  void add_call(const ChoicePart& part) {
    const slm::ToolCall& call = part.call;
    if (!part.continues) {
      close("completed");
      open_ = Kind::call;
      output().push_back({{"type", "function_call"},
                          {"id", "fc_" + random_hex()},
                          {"call_id", call.id},
                          {"name", call.name},
                          {"arguments", ""},
                          {"status", "in_progress"}});
      tell_item("response.output_item.added");
    }
    text_ += call.arguments;
    if (call.arguments.empty()) return;
    OrderedJson delta = item_place();
    delta["delta"] = call.arguments;
    tell("response.function_call_arguments.delta", delta);
  }

  const std::int64_t prompt_;
  OrderedJson response_;
  std::optional<Kind> open_;
  std::string text_;  // of the open item, or its arguments
  std::int64_t told_ = 0;
  OrderedJson timings_;  // null: not asked for
};

}  // namespace

std::unique_ptr<Reply> response_reply(const TextRequest& request, OrderedJson repeated) {
  return std::make_unique<ResponseReply>(request, std::move(repeated));
}

}  // namespace serve
