// The functions that make grammars of answers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/chat/answer_grammar.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/tokenizer.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Where the first of the tags begins.
inline std::size_t first_tag(std::string_view text, const std::vector<std::string>& tags) {
  std::size_t first = text.npos;
  for (const std::string& tag : tags) first = std::min(first, text.find(tag));
  return first;
}

/// Behind the last of the tags; 0: there is none.
inline std::size_t behind_last_tag(std::string_view text, const std::vector<std::string>& tags) {
  std::size_t last = 0;
  for (const std::string& tag : tags) {
    if (const std::size_t at = text.rfind(tag); at != text.npos) last = std::max(last, at + tag.size());
  }
  return last;
}

/// Behind the bracket that closes the brackets that `before` leaves open; 0: it leaves none, or they stay open.
inline std::size_t behind_brackets(std::string_view before, std::string_view text) {
  std::size_t depth = 0, at = 0;
  bool quoted = false;
  const auto take = [&](char byte) {
    if (byte == '"') quoted = !quoted;
    if (quoted) return;
    if (byte == '{' || byte == '[') ++depth;
    if ((byte == '}' || byte == ']') && depth > 0) --depth;
  };
  for (const char byte : before) take(byte);
  if (quoted) return 0;
  while (depth > 0 && at < text.size()) take(text[at++]);
  return depth == 0 ? at : 0;
}

inline Grammar literal(std::string_view words) {
  const std::vector<std::string> one{std::string(words)};
  return Grammar::choice(one);
}

/// The schema of a tool's arguments, which are an object.
inline std::string arguments_schema(std::string_view parameters) {
  if (parameters.empty() || parameters == "null") return R"({"type": "object", "additionalProperties": false})";
  const OwnedJson schema = parse_json(parameters, "parameters", "Send a JSON schema as `parameters` of the tool");
  if (!schema.is_object() || schema.contains("type")) return std::string(parameters);
  const std::size_t begin = parameters.find('{') + 1;
  return text(R"({"type": "object")", schema.empty() ? "" : ", ", parameters.substr(begin));
}

/// The tag at the beginning of a call, if calls are `<tag> NAME ARGUMENTS <tag>`.
inline std::string opening_of(std::string_view head, std::string_view tail, const std::vector<std::string>& tags) {
  std::string opening;
  for (const std::string& tag : tags) {
    if (head.starts_with(tag) && tag.size() > opening.size()) opening = tag;
  }
  const std::string_view behind = head.substr(opening.size());
  const bool is_list = behind.find('[') != behind.npos || first_tag(behind, tags) != behind.npos;
  const std::size_t close = first_tag(tail, tags);
  const bool closes = close != tail.npos && std::find(tags.begin(), tags.end(), tail.substr(close)) != tags.end();
  return opening.starts_with('<') && !is_list && closes ? opening : std::string{};
}

}  // namespace detail

SLM_INLINE std::optional<CallForm> CallForm::of(const ChatTemplate& form, const AnswerFormat& answer) {
  constexpr std::string_view shown_name = "fq7z", shown_key = "\"kq7z\"", shown_value = "\"vq7z\"";  // of call_text
  const ChatFeatures& features = form.features();
  std::string_view written = features.call_text;
  if (written.starts_with(features.generation_prompt)) written.remove_prefix(features.generation_prompt.size());
  const std::vector<std::string> tags = answer.tags();
  const std::size_t name = written.find(shown_name), key = written.find(shown_key), value = written.find(shown_value);
  if (name == written.npos || key == written.npos || value == written.npos) return std::nullopt;
  if (!(name < key && key < value)) return std::nullopt;
  const std::size_t begin = written.rfind('{', key), end = written.find('}', value);
  if (begin == written.npos || end == written.npos || begin < name) return std::nullopt;
  CallForm found;
  found.head_ = written.substr(0, name);
  if (const std::size_t tag = detail::first_tag(found.head_, tags); tag != written.npos) found.head_.erase(0, tag);
  found.middle_ = written.substr(name + shown_name.size(), begin - name - shown_name.size());
  const std::string_view behind = written.substr(end + 1);
  const std::size_t tagged = detail::behind_last_tag(behind, tags);
  const std::size_t closed = detail::behind_brackets(found.head_ + found.middle_, behind);
  found.tail_ = behind.substr(0, std::max(tagged, closed));
  found.opening_ = detail::opening_of(found.head_, found.tail_, tags);
  return found;
}

SLM_INLINE std::string CallForm::before_arguments(std::string_view name) const { return text(head_, name, middle_); }

SLM_INLINE Grammar CallForm::call_of(std::string_view name, std::string_view schema, std::size_t skipped) const {
  std::vector<Grammar> parts{detail::literal(before_arguments(name).substr(skipped)), Grammar::json_schema(schema)};
  if (!tail_.empty()) parts.push_back(detail::literal(tail_));
  return Grammar::sequence(parts);
}

SLM_INLINE Grammar CallForm::call(std::span<const CallSignature> tools) const {
  std::vector<Grammar> calls;
  for (const CallSignature& tool : tools) {
    calls.push_back(call_of(tool.name, detail::arguments_schema(tool.parameters), 0));
  }
  return Grammar::any_of(calls);
}

SLM_INLINE Grammar CallForm::call_behind_opening(std::span<const CallSignature> tools) const {
  std::vector<Grammar> calls;
  for (const CallSignature& tool : tools) {
    try {
      calls.push_back(call_of(tool.name, detail::arguments_schema(tool.parameters), opening_.size()));
    } catch (const Error&) {
      calls.push_back(call_of(tool.name, R"({"type": "object"})", opening_.size()));
    }
  }
  return Grammar::any_of(calls);
}

SLM_INLINE Grammar behind_reasoning(const Grammar& content, const AnswerFormat& format, Reasoning reasoning) {
  std::vector<Grammar> parts{Grammar::through(format.reasoning_end()), Grammar::regex("\\n{0,2}"), content};
  if (reasoning == Reasoning::begun) return Grammar::sequence(parts);
  parts.insert(parts.begin(), detail::literal(format.reasoning_begin()));
  const Grammar forms[]{Grammar::sequence(parts), content};
  return Grammar::any_of(forms);
}

SLM_INLINE TokenTrie tokens_with_tags(const Tokenizer& tokenizer, std::span<const Token> tags) {
  if (tags.empty()) return TokenTrie(tokenizer);
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab()));
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    const auto token = static_cast<Token>(id);
    const bool is_text = !tokenizer.is_special(token) || std::find(tags.begin(), tags.end(), token) != tags.end();
    if (tokenizer.is_token(token) && is_text) bytes[id] = tokenizer.bytes(token);
  }
  return TokenTrie(bytes);
}

}}
