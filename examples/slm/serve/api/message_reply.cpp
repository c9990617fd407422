#include "api/message_reply.hpp"

#include <cstdint>
#include <optional>

#include "api/message_request.hpp"
#include "http/random_hex.hpp"

namespace serve {

namespace {

using Kind = slm::AnswerPart::Kind;

class MessageReply final : public Reply {
 public:
  explicit MessageReply(const TextRequest& request)
      : prompt_(std::ssize(request.prompts.front())), message_{{"id", "msg_" + random_hex()},
                                                               {"type", "message"},
                                                               {"role", "assistant"},
                                                               {"model", request.asked.name},
                                                               {"content", OrderedJson::array()},
                                                               {"stop_reason", nullptr},
                                                               {"stop_sequence", nullptr},
                                                               {"usage", usage(0, 0)}} {}

  void begin() override { event({{"type", "message_start"}, {"message", message_}}); }

  void add(const ChoicePart& part) override {
    if (part.kind == Kind::call) return add_call(part);
    if (open_ != part.kind) {
      close();
      open_ = part.kind;
      const bool thinks = part.kind == Kind::reasoning;
      start(thinks ? OrderedJson{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}
                   : OrderedJson{{"type", "text"}, {"text", ""}});
    }
    const bool thinks = part.kind == Kind::reasoning;
    const char* const name = thinks ? "thinking" : "text";
    content().back()[name].get_ref<std::string&>() += part.text;
    change({{"type", thinks ? "thinking_delta" : "text_delta"}, {name, part.text}});
  }

  void end(const Choice& choice) override {
    close();
    const std::string finish = choice.finish_reason();
    const bool by_string = choice.stop_reason().is_string();
    message_["stop_reason"] = finish == "length"       ? "max_tokens"
                              : finish == "tool_calls" ? "tool_use"
                              : by_string              ? "stop_sequence"
                                                       : "end_turn";
    if (finish == "stop" && by_string) message_["stop_sequence"] = choice.stop_reason();
    message_["usage"] = usage(choice.stats().reused_tokens, choice.tokens());
    event({{"type", "message_delta"},
           {"delta", {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
           {"usage", message_["usage"]}});
    event({{"type", "message_stop"}});
  }

  void fail(const Refusal& refusal) override { event(message_error(refusal)); }
  const OrderedJson& whole() const override { return message_; }
  OrderedJson error(const Refusal& refusal) const override { return message_error(refusal); }
  std::string ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

 private:
  OrderedJson& content() { return message_["content"]; }
  std::size_t index() { return content().size() - 1; }

  /// Tokens of the prompt that came from the cache are counted by themselves.
  OrderedJson usage(std::int64_t cached, std::int64_t answered) const {
    return {{"input_tokens", prompt_ - cached},
            {"cache_read_input_tokens", cached},
            {"cache_creation_input_tokens", 0},
            {"output_tokens", answered}};
  }

  void start(const OrderedJson& block) {
    content().push_back(block);
    event({{"type", "content_block_start"}, {"index", index()}, {"content_block", block}});
  }

  void change(const OrderedJson& delta) {
    event({{"type", "content_block_delta"}, {"index", index()}, {"delta", delta}});
  }

  void stop() { event({{"type", "content_block_stop"}, {"index", index()}}); }

  /// Ends the block that is open.
  void close() {
    if (!open_) return;
    if (*open_ == Kind::call) {
      OrderedJson input = OrderedJson::parse(arguments_, nullptr, false);
      if (input.is_object()) content().back()["input"] = std::move(input);
    }
    if (*open_ == Kind::reasoning) change({{"type", "signature_delta"}, {"signature", ""}});
    stop();
    open_.reset();
  }

  void add_call(const ChoicePart& part) {
    const slm::ToolCall& call = part.call;
    if (!part.continues) {
      close();
      open_ = Kind::call;
      arguments_.clear();
      start({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", OrderedJson::object()}});
    }
    arguments_ += call.arguments;
    if (!call.arguments.empty()) change({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
  }

  const std::int64_t prompt_;
  OrderedJson message_;
  std::optional<Kind> open_;
  std::string arguments_;  // of the open call
};

}  // namespace

std::unique_ptr<Reply> message_reply(const TextRequest& request) { return std::make_unique<MessageReply>(request); }

}  // namespace serve
