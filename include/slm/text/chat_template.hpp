// ChatTemplate: what it is; slm/text/chat.hpp has its functions, too.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/text/jinja/template.hpp"

namespace slm { inline namespace v0_1 {

class Tokenizer;

struct ChatMessage {
  std::string role;  // system, developer, user, assistant or tool
  std::string content;
};

/// The inputs of a template besides messages.
struct ChatOptions {
  std::string_view tools{};      // a JSON list of tools; empty: none
  std::string_view documents{};  // a JSON list; empty: none
  std::string_view kwargs{};     // a JSON object: more variables, such as enable_thinking
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends with the last message's text; excludes a generation prompt
  bool as_given = false;                // messages reach the template as they are: see ChatTemplate::render
  std::optional<jinja::Date> date{};    // of strftime_now; default: now
};

/// The effect of a message or a variable in a template, found by rendering test conversations.
enum class ChatSupport { no, yes, error };  // it leaves the probe out, writes it, fails

struct ChatFeatures {
  ChatSupport system = ChatSupport::no, later_system = ChatSupport::no, developer = ChatSupport::no;
  ChatSupport parts = ChatSupport::no;  // `content` as a list of texts
  ChatSupport tools = ChatSupport::no, tool_calls = ChatSupport::no, tool_results = ChatSupport::no;
  ChatSupport parallel_calls = ChatSupport::no, text_beside_call = ChatSupport::no;
  ChatSupport call_without_content = ChatSupport::no;
  ChatSupport arguments_as_object = ChatSupport::no, arguments_as_text = ChatSupport::no;
  bool tools_in_system_message = false;  // only as its member `tools`, a text
  bool quotes_arguments = false;         // a text of arguments is quoted again
  ChatSupport documents = ChatSupport::no;
  ChatSupport earlier_reasoning = ChatSupport::no, last_reasoning = ChatSupport::no;  // before, after the last user
  bool thinking_switch = false;                                                       // enable_thinking has an effect
  bool opens_thinking = false;  // the generation prompt ends inside the thinking
  std::string generation_prompt;
  std::string call_text;  // how one call of the function fq7z with {"kq7z": "vq7z"} is written; empty: it is not
};

/// Tokens and texts that end an answer, besides the model's end tokens.
struct ChatStops {
  std::vector<Token> tokens;
  std::vector<std::string> strings;  // the next turn's beginning, where that is plain text
};

/// A special token and its name in templates, such as bos_token.
struct ChatToken {
  std::string name, text;
};

/// A JSON object (empty: none) with one more member, which replaces one of the same name. value: JSON.
std::string with_kwarg(std::string_view kwargs, std::string_view name, std::string_view value);

/// Cheap to copy; all functions are const and may be called from several threads.
class ChatTemplate {
 public:
  /// The template of a model: a folder, a GGUF file, or empty for none. choice: a file with a template, the name of one
  /// of the model's templates, or of one that slm has (names()); empty: the model's own, else by the model's name: see
  /// is_guessed(). Throws Error ("chat.…", "json.…", "gguf.…", "io.…").
  static ChatTemplate from(const std::filesystem::path& model, const std::string& choice = {});

  /// The template of this text.
  static ChatTemplate parse(std::string_view source, std::vector<ChatToken> tokens = {},
                            std::string name = "chat template");

  /// The names of the templates that slm has for models that ship none.
  static std::vector<std::string> names();

  /// The same template with this special token instead of the model's.
  ChatTemplate with_token(std::string name, std::string text) const;

  /// The same template if it shows tools. Otherwise a template that lists them in the system message and writes calls
  /// and results as texts, in the format of Qwen2.5: for models that were not trained for tools.
  ChatTemplate with_tools() const;

  /// Throws Error ("chat.…", "json.…"). Roles are checked, a missing or null content becomes "", arguments of calls
  /// that are JSON as text become objects, a content of several texts becomes one where the template takes no lists,
  /// and `developer` becomes `system` where it is not known. With options.as_given nothing of that is done.
  jinja::Rendered render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  /// The same; messages: a JSON list.
  jinja::Rendered render(std::string_view messages, const ChatOptions& options = {}) const;

  /// A rendering as token ids. Control tokens come only from what the template wrote. Throws Error
  /// ("chat.missing-token") where the tokenizer lacks a token of a template that slm has.
  std::vector<Token> encode(const Tokenizer& tokenizer, const jinja::Rendered& rendered) const;
  std::vector<Token> encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                            const ChatOptions& options = {}) const;

  /// Found once, when first asked for.
  const ChatFeatures& features() const;

  ChatStops stops(const Tokenizer& tokenizer) const;

  /// Whether the template or the tokenizer writes a space between the prompt and an answer, which is no part of it.
  bool space_before_answer(const Tokenizer& tokenizer) const;

  /// The name of a template that slm has, or of one of the model's templates.
  const std::string& name() const;
  bool is_guessed() const;  // by the model's name, as it has no template

  /// The source that renders a chat with or without tools.
  const std::string& source(bool with_tools = false) const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state);
  std::shared_ptr<State> copied() const;

  std::shared_ptr<const State> state_;
};

}}
