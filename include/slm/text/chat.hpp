// Conversations as prompts: what Hugging Face's apply_chat_template(messages, add_generation_prompt=True) gives for
// the published templates of the families that slm runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/text/chat_template.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/unicode.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct Options {
  std::string date = "26 Jul 2024";  // "Today Date" of llama31 and llama32; llama32 expects the day's date here
  bool thinking = true;              // qwen3: false opens the answer with an empty thought
};

/// A piece of a prompt. Markers are tokens of their own; markup is the template's plain text; content is what a message
/// said, and never becomes a control token.
struct Piece {
  enum class Kind { marker, markup, content } kind;
  std::string text;
};

/// What ends an answer, besides the model's own end tokens.
struct Stops {
  std::vector<Token> tokens;
  std::vector<std::string> strings;  // the next turn's marker, where that is plain text
};

namespace detail {

/// Python's str.strip(), which the templates call: Unicode white space and the four separators of ASCII.
inline bool is_stripped(char32_t code) { return unicode::is_space(code) || (code >= 0x1C && code <= 0x1F); }

inline std::string_view strip_right(std::string_view text) {
  while (!text.empty() && is_stripped(utf8::at(text, utf8::before(text, text.size())))) {
    text = text.substr(0, utf8::before(text, text.size()));
  }
  return text;
}

inline std::string_view strip(std::string_view text) {
  std::size_t begin = 0;
  for (std::size_t next = 0; next < text.size() && is_stripped(utf8::next(text, next));) begin = next;
  return strip_right(text.substr(begin));
}

inline bool is_mistral(Template value) {
  return value == Template::mistral_v01 || value == Template::mistral_v02 || value == Template::mistral_spaced ||
         value == Template::mistral_v03;
}

inline bool is_phi(Template value) {
  return value == Template::phi3 || value == Template::phi3_vision || value == Template::phi35;
}

/// The system message of a ChatML model that is given none.
inline std::string_view default_system(Template value) {
  if (value == Template::smollm2) return "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
  if (value == Template::qwen2) return "You are a helpful assistant.";
  if (value == Template::qwen25) return "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  return {};
}

inline void check(Template value, std::span<const Message> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "system" || role == "user" || role == "assistant") continue;
    throw Error("chat.unknown-role",
                text("message ", i, " has the role '", role, "', expected system, user or assistant"),
                "Give each message one of these roles");
  }
  if (messages.empty()) {
    throw Error("chat.no-question", "the conversation has no messages, expected one or more", "Add what the user asks");
  }
  if (value == Template::amd_olmo) {
    for (const Message& message : messages) {
      if (message.role != "system") continue;
      throw Error("chat.no-system", "the template amd-olmo has no place for a system message",
                  "Put its text into the first message of the user");
    }
  }
  if (value == Template::amd_olmo && messages.back().role != "user") {
    throw Error("chat.no-question", "the last message is of the assistant, expected one of the user with amd-olmo",
                "End the conversation with what the user asks");
  }
  if (value != Template::llama2 && !is_mistral(value)) return;
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  if (first == messages.size()) {
    throw Error("chat.no-question",
                text("the conversation is a system message alone, expected a message of the user: ", name_of(value),
                     " writes system messages into those of the user"),
                "Add what the user asks");
  }
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role == expected) continue;
    throw Error("chat.bad-order",
                text("message ", i, " is of the ", messages[i].role, ", expected the ", expected, ": with ",
                     name_of(value), " they take turns after one system message at most"),
                "Join messages that follow each other with the same role");
  }
}

/// Collects the pieces of a prompt.
class Writer {
 public:
  Writer& marker(std::string_view text) { return add(Piece::Kind::marker, text); }
  Writer& markup(std::string_view text) { return add(Piece::Kind::markup, text); }
  Writer& content(std::string_view text) { return add(Piece::Kind::content, text); }
  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  Writer& add(Piece::Kind kind, std::string_view text) {
    if (!text.empty()) pieces_.push_back({kind, std::string{text}});
    return *this;
  }
  std::vector<Piece> pieces_;
};

inline void write_llama2(Writer& out, std::span<const Message> messages) {
  const bool has_system = messages.front().role == "system";
  for (std::size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const std::string_view said = messages[i].content;
    if (messages[i].role == "assistant") {
      out.markup(" ").content(strip(said)).markup(" ").marker("</s>");
    } else if (i == 1 && has_system) {
      // The template strips both together, so white space before the question stays.
      const std::string_view asked = strip_right(said);
      out.marker("<s>").markup("[INST] <<SYS>>\n").content(messages[0].content);
      out.markup(asked.empty() ? "\n<</SYS>>" : "\n<</SYS>>\n\n").content(asked).markup(" [/INST]");
    } else {
      out.marker("<s>").markup("[INST] ").content(strip(said)).markup(" [/INST]");
    }
  }
}

inline void write_mistral(Writer& out, Template value, std::span<const Message> messages) {
  const bool v03 = value == Template::mistral_v03, spaced = value == Template::mistral_spaced;
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  const std::size_t with_system = v03 ? messages.size() - 1 : first;  // the question that the system message precedes
  out.marker("<s>");
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string_view said = messages[i].content;
    if (messages[i].role == "assistant") {
      out.markup(" ").content(v03 ? strip(said) : said).marker("</s>");
      if (value == Template::mistral_v01) out.markup(" ");
      continue;
    }
    if (spaced) out.markup(" ");
    v03 ? out.marker("[INST]").markup(" ") : out.markup("[INST] ");
    if (first == 1 && i == with_system) out.content(messages[0].content).markup("\n\n");
    out.content(said);
    v03 ? out.marker("[/INST]") : out.markup(" [/INST]");
  }
}

inline void write_llama3(Writer& out, Template value, std::span<const Message> messages, const Options& options) {
  const auto header = [&out](std::string_view role) -> Writer& {
    return out.marker("<|start_header_id|>").markup(role).marker("<|end_header_id|>").markup("\n\n");
  };
  out.marker("<|begin_of_text|>");
  if (value == Template::llama31 || value == Template::llama32) {
    header("system").markup("Cutting Knowledge Date: December 2023\nToday Date: ").content(options.date).markup("\n\n");
    if (messages.front().role == "system") {
      out.content(strip(messages.front().content));
      messages = messages.subspan(1);
    }
    out.marker("<|eot_id|>");
  }
  for (const Message& message : messages) header(message.role).content(strip(message.content)).marker("<|eot_id|>");
  header("assistant");
}

/// The text without newlines at its beginning.
inline std::string_view without_newlines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

/// The parts of an answer of Qwen3, as its template divides them.
inline std::pair<std::string_view, std::string_view> thought_and_answer(std::string_view said) {
  constexpr std::string_view begin = "<think>", end = "</think>";
  if (!has(said, end)) return {{}, said};
  std::string_view thought = said.substr(0, said.find(end));
  thought = thought.substr(0, thought.find_last_not_of('\n') + 1);
  if (const std::size_t at = thought.rfind(begin); at != thought.npos) thought.remove_prefix(at + begin.size());
  thought = without_newlines(thought);
  thought = thought.substr(0, thought.find_last_not_of('\n') + 1);
  return {thought, without_newlines(said.substr(said.rfind(end) + end.size()))};
}

/// The index of the user's last message that is no result of a tool; without one that of the last message.
inline std::size_t last_question(std::span<const Message> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string_view said = messages[i].content;
    const bool result = said.starts_with("<tool_response>") && said.ends_with("</tool_response>");
    if (messages[i].role == "user" && !result) return i;
  }
  return messages.size() - 1;
}

inline void write_chatml(Writer& out, Template value, std::span<const Message> messages, const Options& options) {
  const auto turn = [&out](std::string_view role, std::string_view said) {
    out.marker("<|im_start|>").markup(role).markup("\n").content(said).marker("<|im_end|>").markup("\n");
  };
  if (const auto system = default_system(value); !system.empty() && messages.front().role != "system") {
    turn("system", system);
  }
  const std::size_t question = last_question(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string_view said = messages[i].content;
    if (value != Template::qwen3 || messages[i].role != "assistant") {
      turn(messages[i].role, said);
      continue;
    }
    const auto [thought, answer] = thought_and_answer(said);
    if (i <= question || (i + 1 < messages.size() && thought.empty())) {
      turn("assistant", answer);
      continue;
    }
    out.marker("<|im_start|>").markup("assistant\n").marker("<think>").markup("\n").content(thought).markup("\n");
    out.marker("</think>").markup("\n\n").content(without_newlines(answer)).marker("<|im_end|>").markup("\n");
  }
  out.marker("<|im_start|>").markup("assistant\n");
  if (value == Template::qwen3 && !options.thinking) {
    out.marker("<think>").markup("\n\n").marker("</think>").markup("\n\n");
  }
}

/// Turns of the form <|role|>\n content end \n
inline void write_bars(Writer& out, Template value, std::span<const Message> messages) {
  const auto header = [&](std::string_view role) -> Writer& {
    const std::string tag = text("<|", role, "|>");
    return (is_phi(value) ? out.marker(tag) : out.markup(tag)).markup("\n");
  };
  if (value == Template::amd_olmo) out.marker("<|endoftext|>");
  for (const Message& message : messages) {
    if (value == Template::phi35 && message.role == "system" && message.content.empty()) continue;
    header(message.role).content(message.content);
    if (is_phi(value)) out.marker("<|end|>");
    if (value == Template::zephyr) out.marker("</s>");
    if (value == Template::amd_olmo && message.role == "assistant") out.marker("<|endoftext|>");
    out.markup("\n");
  }
  if (value != Template::phi3_vision || messages.back().role != "assistant") header("assistant");
}

}  // namespace detail

/// The pieces of a prompt that asks for the next answer, whichever message is the last. Throws Error ("chat.…") on an
/// empty conversation, and on roles that the template does not allow.
inline std::vector<Piece> pieces(Template value, std::span<const Message> messages, const Options& options = {}) {
  detail::check(value, messages);
  std::vector<Message> sound(messages.begin(), messages.end());
  for (Message& message : sound) {
    std::string repaired;
    utf8::append_lossy(repaired, message.content);
    message.content = std::move(repaired);
  }
  detail::Writer out;
  switch (value) {
    case Template::plain:
      for (const Message& message : sound) {
        const bool ended = !message.content.empty() && message.content.back() == '\n';
        out.content(message.content).markup(ended ? "" : "\n");
      }
      break;
    case Template::llama2: detail::write_llama2(out, sound); break;
    case Template::llama3:
    case Template::llama31:
    case Template::llama32: detail::write_llama3(out, value, sound, options); break;
    case Template::mistral_v01:
    case Template::mistral_v02:
    case Template::mistral_spaced:
    case Template::mistral_v03: detail::write_mistral(out, value, sound); break;
    case Template::amd_olmo:
    case Template::phi3:
    case Template::phi3_vision:
    case Template::phi35:
    case Template::zephyr: detail::write_bars(out, value, sound); break;
    case Template::chatml:
    case Template::smollm2:
    case Template::qwen2:
    case Template::qwen25:
    case Template::qwen3: detail::write_chatml(out, value, sound, options); break;
  }
  return out.take();
}

/// The prompt as text, to look at. To generate from it, use encode(): in a text, what a message said and what the
/// template wrote can no longer be told apart.
inline std::string render(Template value, std::span<const Message> messages, const Options& options = {}) {
  std::string prompt;
  for (const Piece& piece : pieces(value, messages, options)) prompt += piece.text;
  return prompt;
}

/// The prompt as token ids. Where no message spells a control token these are the ids of render()'s text; where one
/// does, it stays text. (A template's markers that are plain text in the model's vocabulary, such as Llama-2's [INST],
/// are no control tokens, and a message can spell them.) Throws Error ("chat.missing-token") when the tokenizer lacks a
/// token that the template needs.
inline std::vector<Token> encode(const Tokenizer& tokenizer, Template value, std::span<const Message> messages,
                                 const Options& options = {}) {
  const std::vector<Piece> all = pieces(value, messages, options);
  std::vector<TextPart> parts;
  for (const Piece& piece : all) {
    parts.push_back({piece.text, piece.kind == Piece::Kind::content});
    if (piece.kind != Piece::Kind::marker) continue;
    const auto token = tokenizer.token(piece.text);
    if (token && tokenizer.is_control(*token)) continue;
    throw Error(
        "chat.missing-token",
        text("the template ", name_of(value), " needs the token '", piece.text, "', which this tokenizer lacks"),
        "Choose the template that the model was trained with, or plain");
  }
  return tokenizer.encode(parts, value == Template::plain);
}

/// Whether the template or the tokenizer writes a space between the prompt and what the assistant says. An answer then
/// begins with that space, which is no part of its message.
inline bool space_before_answer(Template value) {
  return value == Template::llama2 || detail::is_phi(value) || detail::is_mistral(value);
}

/// What ends an answer under this template. Tokens that the tokenizer does not have are left out.
inline Stops stops(const Tokenizer& tokenizer, Template value) {
  Stops found;
  const auto add = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (const auto token = tokenizer.token(name); token && tokenizer.is_control(*token))
        found.tokens.push_back(*token);
    }
  };
  switch (value) {
    case Template::plain: break;
    case Template::amd_olmo:
      add({"<|endoftext|>"});
      found.strings = {"<|user|>"};
      break;
    case Template::llama2:
    case Template::mistral_v01:
    case Template::mistral_v02:
    case Template::mistral_spaced:
      add({"</s>"});
      found.strings = {"[INST]"};
      break;
    case Template::mistral_v03: add({"</s>", "[INST]"}); break;
    case Template::llama3:
    case Template::llama31:
    case Template::llama32: add({"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"}); break;
    case Template::phi3:
    case Template::phi3_vision:
    case Template::phi35: add({"<|endoftext|>", "<|assistant|>", "<|end|>"}); break;
    case Template::zephyr:
      add({"</s>"});
      found.strings = {"<|user|>", "<|system|>"};
      break;
    case Template::chatml:
    case Template::smollm2:
    case Template::qwen2:
    case Template::qwen25:
    case Template::qwen3: add({"<|im_end|>", "<|endoftext|>", "<|im_start|>"}); break;
  }
  return found;
}

}}}
