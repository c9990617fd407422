// Chat: a conversation in the program that runs the model. The model may call the program's functions.
#pragma once

#include "slm/core/implementation_order.inc"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/chat/answer_grammar.hpp"
#include "slm/chat/format.hpp"
#include "slm/core/cancel.hpp"
#include "slm/core/macros.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/decode/stats.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/tokenizer.hpp"

namespace slm { inline namespace v0_1 {

/// A function of the program that the model may call.
struct ChatTool {
  std::string name;  // 1 to 64 letters, digits and the signs _ - .
  std::string description = {};
  std::string parameters = {};  // the JSON schema of the arguments, which are an object; empty: no arguments
  /// Called with the arguments, a JSON object. The result is what the model reads: any text, often JSON. Arguments fit
  /// the schema where a call is required; else the model may have written any object.
  std::function<std::string(std::string_view arguments)> call = {};
};

/// A message of a conversation.
struct ChatTurn {
  std::string role;  // system, developer, user, assistant or tool
  std::string content = {};
  std::string reasoning = {};        // of an assistant
  std::vector<ToolCall> calls = {};  // of an assistant
  std::string call_id = {};          // of a tool: the id of the call that it answers
};

enum class ToolChoice { none, automatic, required };

/// May change between questions.
struct ChatSettings {
  std::vector<ChatTool> tools = {};
  ToolChoice tool_choice = ToolChoice::automatic;  // required: the first answer to a question is a call
  std::string required_tool = {};                  // the tool that a required call must have; empty: any
  int most_answers = 8;                            // of one question: all except the last one call tools
  Sampling sampling = {.max_new_tokens = 1024};    // of each answer
  std::optional<Grammar> grammar{};                // of the content of answers
  std::string kwargs = {};  // a JSON object: variables of the template, such as {"enable_thinking": false}
  CancelToken cancel = {};
  /// Optional. Called while the model writes: with text as it arrives, with calls when they are complete.
  std::function<void(const AnswerPart&)> on_part = {};
};

struct ChatAnswer {
  std::string content, reasoning;  // of the last answer
  std::vector<ToolCall> calls;     // that were made for the question, in their order
  /// False: the last answer was cut (by its length, the context or a cancellation), or the model still called tools
  /// after ChatSettings::most_answers answers. The results of all calls are in the conversation.
  bool is_complete = false;
  Stats stats;  // of the last answer
};

/// Answers a request, and passes each token to the sink until it returns false.
using ChatDecoder = std::function<Stats(const Request&, const std::function<bool(Token)>& sink)>;

namespace detail {
class ChatState;
}

/// Not thread-safe. The decoder must outlive the chat, and may serve other chats between questions; several chats on
/// several threads need several decoders, which may share a model. Earlier turns stay in the decoder's KV cache.
class Chat {
 public:
  /// tokenizer, form: of the decoder's target.
  template <VerificationRule Rule>
  Chat(SpeculativeDecoder<Rule>& decoder, Tokenizer tokenizer, ChatTemplate form, ChatSettings settings = {})
      : Chat(ChatDecoder([&decoder](const Request& request, const std::function<bool(Token)>& sink) {
               return decoder.generate(request, sink);
             }),
             decoder.target().info().vocab, std::move(tokenizer), std::move(form), std::move(settings)) {}

  /// With any decoder, such as a request of an Engine. vocab: of the model.
  Chat(ChatDecoder decode, int vocab, Tokenizer tokenizer, ChatTemplate form, ChatSettings settings = {});

  Chat(Chat&& other) noexcept;
  Chat& operator=(Chat&& other) noexcept;
  ~Chat();

  /// Adds the question to the conversation and answers it. Calls of tools are run, and their results given to the
  /// model, until an answer has no calls. Throws Error ("chat.…", "grammar.…", "json.…", and those of the decoder), and
  /// what a tool throws; the conversation is then as before the question.
  ChatAnswer ask(std::string_view question);

  /// Adds a message, such as the system message or an earlier conversation.
  void add(ChatTurn turn);

  /// The conversation so far.
  std::span<const ChatTurn> turns() const;
  /// Begins a new conversation.
  void clear();

  ChatSettings& settings();

 private:
  std::unique_ptr<detail::ChatState> state_;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_chat_chat_hpp)
}}}

#if SLM_COMPILES
#include "slm/chat/chat_functions.hpp"
#endif
