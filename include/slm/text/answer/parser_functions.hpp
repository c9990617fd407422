// The functions of AnswerFormat and AnswerParser.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/answer/format_probes.hpp"
#include "slm/text/answer/harmony_reader.hpp"
#include "slm/text/answer/syntax.hpp"
#include "slm/text/answer/tagged_reader.hpp"
#include "slm/text/answer_parser.hpp"
#include "slm/text/chat.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

class AnswerParserState {
 public:
  AnswerParserState(const AnswerSyntax& syntax, const ReasoningTags& reasoning, const AnswerOptions& options)
      : tools_(options.tools), reader_(make(syntax, reasoning, tools_, options)) {}
  AnswerParserState(const AnswerParserState&) = delete;
  AnswerParserState& operator=(const AnswerParserState&) = delete;

  std::vector<AnswerPart> push(std::string_view piece) {
    std::visit([&](auto& reader) { reader.push(piece, out_); }, reader_);
    return out_.take();
  }

  std::vector<AnswerPart> finish() {
    std::visit([&](auto& reader) { reader.finish(out_); }, reader_);
    out_.finish();
    return out_.take();
  }

 private:
  using Reader = std::variant<TaggedReader, HarmonyReader>;

  static Reader make(const AnswerSyntax& syntax, const ReasoningTags& reasoning, const OfferedTools& tools,
                     const AnswerOptions& options) {
    const bool reads_calls = options.reads_calls && syntax.body != CallBody::none;
    if (syntax.body == CallBody::harmony) return HarmonyReader(syntax, tools, reads_calls);
    return TaggedReader(syntax, reasoning, tools, reads_calls, options.begins_in_reasoning);
  }

  OfferedTools tools_;
  PartsWriter out_;
  Reader reader_;
};

}  // namespace detail

SLM_CONSTRUCTOR AnswerFormat::AnswerFormat()
    : syntax_(detail::answer_syntax("plain")),
      reasoning_open_(syntax_->reasoning.open),
      reasoning_close_(syntax_->reasoning.close) {}

SLM_INLINE AnswerFormat AnswerFormat::named(std::string_view name) {
  AnswerFormat format;
  format.syntax_ = detail::answer_syntax(name);
  if (format.syntax_ == nullptr) {
    std::string known;
    for (const std::string& one : names()) known += text(known.empty() ? "" : ", ", one);
    throw Error("chat.unknown-format", text("there is no format ", quote(name), " of answers"),
                text("Use one of: ", known));
  }
  format.reasoning_open_ = format.syntax_->reasoning.open;
  format.reasoning_close_ = format.syntax_->reasoning.close;
  return format;
}

SLM_INLINE AnswerFormat AnswerFormat::of(const ChatTemplate& form) {
  const detail::FormatProbes probes(form);
  AnswerFormat format = named(probes.syntax());
  const detail::ReasoningTags tags = probes.reasoning(*format.syntax_);
  format.reasoning_open_ = tags.open;
  format.reasoning_close_ = tags.close;
  return format;
}

SLM_INLINE std::vector<std::string> AnswerFormat::names() {
  std::vector<std::string> names;
  for (const detail::AnswerSyntax& syntax : detail::answer_syntaxes) names.emplace_back(syntax.name);
  return names;
}

SLM_INLINE std::string_view AnswerFormat::name() const { return syntax_->name; }
SLM_INLINE bool AnswerFormat::has_calls() const { return syntax_->body != detail::CallBody::none; }

SLM_INLINE std::vector<std::string> AnswerFormat::tags() const {
  std::vector<std::string> tags;
  const auto add = [&tags](std::string_view tag) {
    while (!tag.empty() && detail::is_blank(tag.back())) tag.remove_suffix(1);
    if (!tag.empty()) tags.emplace_back(tag);
  };
  for (const std::string_view tag :
       {reasoning_open_, reasoning_close_, syntax_->open, syntax_->begin, syntax_->other_begin, syntax_->end,
        syntax_->close, syntax_->response.open, syntax_->response.close}) {
    add(tag);
  }
  constexpr std::array<std::string_view, 15> inner{
      "[ARGS]",        "[CALL_ID]",    "<｜tool▁sep｜>", "<|tool_call_argument_begin|>",
      "<|\"|>",        "<|channel>",   "<arg_key>",      "</arg_key>",
      "<arg_value>",   "</arg_value>", "｜DSML｜",       "<|message|>",
      "<|constrain|>", "<function",    "<parameter"};
  for (const std::string_view tag : inner) add(tag);
  if (syntax_->body == detail::CallBody::harmony) {
    for (const std::string_view tag : detail::HarmonyReader::ends) add(tag);
  }
  return tags;
}

SLM_INLINE bool AnswerFormat::begins_in_reasoning(const jinja::Rendered& prompt) const {
  const std::string_view all = detail::trimmed(prompt.text);
  if (reasoning_open_.empty() || !all.ends_with(reasoning_open_)) return false;
  const std::size_t end = static_cast<std::size_t>(all.data() + all.size() - prompt.text.data());
  std::size_t begin = 0;
  for (const jinja::Rendered::Span& span : prompt.spans) {
    if (begin < end && end <= span.end) return span.written;
    begin = span.end;
  }
  return false;
}

SLM_CONSTRUCTOR AnswerParser::AnswerParser(const AnswerFormat& format, const AnswerOptions& options) {
  const detail::ReasoningTags tags{format.reasoning_open_, format.reasoning_close_};
  state_ = std::make_unique<detail::AnswerParserState>(*format.syntax_, tags, options);
}
SLM_CONSTRUCTOR AnswerParser::AnswerParser(AnswerParser&& other) noexcept : state_(std::move(other.state_)) {}
SLM_INLINE AnswerParser& AnswerParser::operator=(AnswerParser&& other) noexcept {
  state_ = std::move(other.state_);
  return *this;
}
SLM_CONSTRUCTOR AnswerParser::~AnswerParser() {}

SLM_INLINE std::vector<AnswerPart> AnswerParser::push(std::string_view piece) { return state_->push(piece); }
SLM_INLINE std::vector<AnswerPart> AnswerParser::finish() { return state_->finish(); }

SLM_INLINE void ParsedAnswer::add(AnswerPart part) {
  switch (part.kind) {
    case AnswerPart::Kind::reasoning: reasoning += part.text; break;
    case AnswerPart::Kind::content: content += part.text; break;
    case AnswerPart::Kind::call: calls.push_back(std::move(part.call)); break;
  }
}

SLM_INLINE ParsedAnswer parse_answer(std::string_view text, const AnswerFormat& format, const AnswerOptions& options) {
  AnswerParser parser(format, options);
  ParsedAnswer answer;
  for (AnswerPart& part : parser.push(text)) answer.add(std::move(part));
  for (AnswerPart& part : parser.finish()) answer.add(std::move(part));
  return answer;
}

}}
