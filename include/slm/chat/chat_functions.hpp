// The functions of Chat.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/chat/chat.hpp"
#include "slm/core/error.hpp"
#include "slm/grammar/constrain.hpp"
#include "slm/io/json.hpp"
#include "slm/text/answer/json_scan.hpp"
#include "slm/text/text_stream.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

inline bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char byte) {
    const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    return letter || (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
  });
}

/// Tools as a JSON list in OpenAI's form. The order of a schema's members stays, since templates show it.
inline std::string json_of(const std::vector<ChatTool>& tools) {
  std::string list;
  for (const ChatTool& tool : tools) {
    list += text(list.empty() ? "[" : ", ", R"({"type": "function", "function": {"name": )", quoted_json(tool.name));
    if (!tool.description.empty()) list += text(R"(, "description": )", quoted_json(tool.description));
    if (!tool.parameters.empty()) list += text(R"(, "parameters": )", tool.parameters);
    list += "}}";
  }
  return list.empty() ? list : list + "]";
}

inline std::string json_of(const ChatTurn& turn) {
  std::string json = text(R"({"role": )", quoted_json(turn.role), R"(, "content": )", quoted_json(turn.content));
  if (!turn.reasoning.empty()) json += text(R"(, "reasoning_content": )", quoted_json(turn.reasoning));
  if (!turn.call_id.empty()) json += text(R"(, "tool_call_id": )", quoted_json(turn.call_id));
  std::string calls;
  for (const ToolCall& call : turn.calls) {
    calls +=
        text(calls.empty() ? "" : ", ", R"({"id": )", quoted_json(call.id), R"(, "type": "function", "function": )",
             R"({"name": )", quoted_json(call.name), R"(, "arguments": )", quoted_json(call.arguments), "}}");
  }
  if (!calls.empty()) json += text(R"(, "tool_calls": [)", calls, "]");
  return json + "}";
}

class ChatState {
 public:
  ChatState(ChatDecoder decode, int vocab, Tokenizer tokenizer, ChatTemplate form, ChatSettings given)
      : settings(std::move(given)),
        decode_(std::move(decode)),
        tokenizer_(std::move(tokenizer)),
        format_(ChatFormat::of(std::move(form), tokenizer_)),
        stop_tokens_(format_.stop_tokens(vocab)) {}

  ChatAnswer ask(std::string_view question) {
    check_settings();
    const std::size_t before = turns.size();
    try {
      turns.push_back({.role = "user", .content = std::string(question)});
      return answer();
    } catch (...) {
      turns.resize(before);
      throw;
    }
  }

  ChatSettings settings;
  std::vector<ChatTurn> turns;

 private:
  void check_settings() const {
    const auto bad = [](std::string_view fault, std::string_view advice) {
      return Error("chat.bad-tool", fault, advice);
    };
    const auto has = [this](std::string_view name) {
      return std::count_if(settings.tools.begin(), settings.tools.end(),
                           [name](const ChatTool& tool) { return tool.name == name; });
    };
    for (const ChatTool& tool : settings.tools) {
      if (!is_tool_name(tool.name)) {
        throw bad(
            text("a tool has the name ", quote(tool.name), ", expected 1 to 64 letters, digits and the signs _ - ."),
            "Rename it");
      }
      if (has(tool.name) > 1) throw bad(text("two tools have the name ", quote(tool.name)), "Rename one");
      if (!tool.call) throw bad(text("the tool ", quote(tool.name), " has no function"), "Set ChatTool::call");
      if (tool.parameters.empty()) continue;
      const OwnedJson schema = parse_json(tool.parameters, "parameters", "Set ChatTool::parameters to a JSON schema");
      if (!schema.is_object()) {
        throw bad(
            text("the parameters of the tool ", quote(tool.name), " are ", schema.type_name(), ", expected an object"),
            "Set ChatTool::parameters to the JSON schema of an object");
      }
    }
    if (settings.tool_choice == ToolChoice::required && settings.tools.empty()) {
      throw bad("a call is required, but the chat has no tools", "Add a tool, or choose ToolChoice::automatic");
    }
    if (!settings.required_tool.empty() && has(settings.required_tool) == 0) {
      throw bad(text("a call of ", quote(settings.required_tool), " is required, which is no tool of the chat"),
                "Name one of the tools");
    }
    if (settings.most_answers < 1) {
      throw Error("chat.bad-options", text("'most_answers' is ", settings.most_answers, ", expected at least 1"),
                  "Allow at least one answer");
    }
  }

  ChatAnswer answer() {
    ChatAnswer all;
    ToolChoice choice = settings.tools.empty() ? ToolChoice::none : settings.tool_choice;
    for (int n = 0; n < settings.most_answers; ++n) {
      ParsedAnswer parsed = write(choice, all.stats);
      for (ToolCall& call : parsed.calls) {
        if (call.id.empty()) call.id = new_id();
      }
      const std::vector<ToolCall> calls = parsed.calls;
      turns.push_back({.role = "assistant",
                       .content = parsed.content,
                       .reasoning = parsed.reasoning,
                       .calls = std::move(parsed.calls)});
      for (const ToolCall& call : calls) {
        turns.push_back({.role = "tool", .content = run(call), .call_id = call.id});
        all.calls.push_back(call);
      }
      all.content = std::move(parsed.content);
      all.reasoning = std::move(parsed.reasoning);
      if (calls.empty()) {
        const FinishReason end = all.stats.finish_reason;
        all.is_complete = end == FinishReason::end_token || end == FinishReason::stop_token ||
                          end == FinishReason::complete || end == FinishReason::sink;
        return all;
      }
      if (choice == ToolChoice::required) choice = ToolChoice::automatic;  // else the model would call for ever
    }
    return all;
  }

  /// One answer of the model.
  ParsedAnswer write(ToolChoice choice, Stats& stats) {
    const std::string tools = choice == ToolChoice::none ? std::string{} : json_of(settings.tools);
    const jinja::Rendered prompt = render(tools);
    const Reasoning reasoning = format_.reasoning_after(prompt);
    Request request{.prompt = format_.form.encode(tokenizer_, prompt),
                    .sampling = settings.sampling,
                    .constraint = constraint(choice, reasoning),
                    .cancel = settings.cancel};
    std::vector<Token>& stops = request.sampling.stop_tokens;
    stops.insert(stops.end(), stop_tokens_.begin(), stop_tokens_.end());
    AnswerParser parser(format_.answer, {.tools = tools,
                                         .reads_calls = choice != ToolChoice::none,
                                         .begins_in_reasoning = reasoning == Reasoning::begun});
    ParsedAnswer parsed;
    bool begun = false;
    const auto take = [&](std::vector<AnswerPart> parts) {
      for (AnswerPart& part : parts) {
        if (settings.on_part) settings.on_part(part);
        parsed.add(std::move(part));
      }
    };
    TextStream stream(
        tokenizer_, request.prompt, [&](std::string_view piece) { take(parser.push(format_.spoken(piece, begun))); },
        format_.stops.strings, 0, format_.tags);
    const auto is_stop = [&stops](Token token) { return std::find(stops.begin(), stops.end(), token) != stops.end(); };
    stats = decode_(request, [&](Token token) { return is_stop(token) || stream(token); });
    stream.finish();
    take(parser.finish());
    return parsed;
  }

  jinja::Rendered render(std::string_view tools) const {
    std::string messages;
    for (const ChatTurn& turn : turns) messages += (messages.empty() ? "[" : ", ") + json_of(turn);
    ChatOptions options;
    options.kwargs = settings.kwargs;
    options.tools = tools;
    return format_.form.render(messages + "]", options);
  }

  ConstraintRef constraint(ToolChoice choice, Reasoning reasoning) {
    std::optional<Grammar> grammar = settings.grammar;
    const std::optional<CallForm> form =
        choice == ToolChoice::none ? std::nullopt : CallForm::of(format_.form, format_.answer);
    const bool is_required = choice == ToolChoice::required;
    if (is_required && !form) {
      throw Error("chat.no-json-calls",
                  "a call is required, but this model does not write the arguments of calls in JSON",
                  "Choose ToolChoice::automatic, or another model");
    }
    if (form && (is_required || grammar)) {
      std::vector<CallSignature> signatures;
      for (const ChatTool& tool : settings.tools) {
        const bool is_asked = !is_required || settings.required_tool.empty() || settings.required_tool == tool.name;
        if (is_asked) signatures.push_back({tool.name, tool.parameters});
      }
      std::vector<Grammar> forms{form->call(signatures)};
      if (!is_required) forms.insert(forms.begin(), *grammar);
      grammar = Grammar::any_of(forms);
    }
    if (!grammar) return nullptr;
    if (reasoning != Reasoning::none) grammar = behind_reasoning(*grammar, format_.answer, reasoning);
    if (!tokens_) tokens_ = tokens_with_tags(tokenizer_, format_.tags);
    return constrain(*grammar, *tokens_);
  }

  /// The result of a call for the model.
  std::string run(const ToolCall& call) const {
    const auto tool = std::find_if(settings.tools.begin(), settings.tools.end(),
                                   [&call](const ChatTool& one) { return one.name == call.name; });
    if (tool == settings.tools.end()) return text("There is no tool ", quote(call.name), ".");
    return tool->call(call.arguments);
  }

  /// Some templates want nine letters or digits.
  std::string new_id() {
    const std::string number = std::to_string(++ids_);
    return "c" + std::string(8 - std::min<std::size_t>(8, number.size()), '0') + number;
  }

  ChatDecoder decode_;
  Tokenizer tokenizer_;
  ChatFormat format_;
  std::vector<Token> stop_tokens_;
  std::optional<TokenTrie> tokens_;  // made for the first constraint
  std::size_t ids_ = 0;              // of calls so far
};

}  // namespace detail

SLM_CONSTRUCTOR Chat::Chat(ChatDecoder decode, int vocab, Tokenizer tokenizer, ChatTemplate form, ChatSettings settings)
    : state_(std::make_unique<detail::ChatState>(std::move(decode), vocab, std::move(tokenizer), std::move(form),
                                                 std::move(settings))) {}
SLM_CONSTRUCTOR Chat::Chat(Chat&& other) noexcept : state_(std::move(other.state_)) {}
SLM_INLINE Chat& Chat::operator=(Chat&& other) noexcept {
  state_ = std::move(other.state_);
  return *this;
}
SLM_CONSTRUCTOR Chat::~Chat() {}

SLM_INLINE ChatAnswer Chat::ask(std::string_view question) { return state_->ask(question); }
SLM_INLINE void Chat::add(ChatTurn turn) { state_->turns.push_back(std::move(turn)); }
SLM_INLINE std::span<const ChatTurn> Chat::turns() const { return state_->turns; }
SLM_INLINE void Chat::clear() { state_->turns.clear(); }
SLM_INLINE ChatSettings& Chat::settings() { return state_->settings; }

}}
