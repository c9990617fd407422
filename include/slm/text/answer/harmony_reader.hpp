// HarmonyReader: reads gpt-oss's answers, which are messages with a channel and possibly a recipient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "slm/text/answer/bodies.hpp"
#include "slm/text/answer/parts.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Reads an answer that arrives in pieces. The text begins behind the header's <|start|>assistant.
class HarmonyReader {
 public:
  static constexpr std::string_view ends[]{"<|end|>", "<|call|>", "<|return|>", "<|start|>"};

  HarmonyReader(const AnswerSyntax& syntax, const OfferedTools& tools, bool reads_calls)
      : syntax_(syntax), tools_(tools), reads_calls_(reads_calls) {}

  void push(std::string_view piece, PartsWriter& out) {
    text_ += piece;
    read(out, false);
    text_.erase(0, std::exchange(at_, 0));
  }

  void finish(PartsWriter& out) { read(out, true); }

 private:
  enum class State { header, reasoning, content, call };
  static constexpr std::string_view message_tag = "<|message|>";
  static constexpr std::size_t longest_header = 1024;

  std::string_view rest() const { return std::string_view(text_).substr(at_); }

  void read(PartsWriter& out, bool is_final) {
    while (step(out, is_final)) continue;
    if (!is_final) return;
    if (state_ == State::call) out.content(rest());
    at_ = text_.size();
  }

  bool step(PartsWriter& out, bool is_final) {
    switch (state_) {
      case State::header: return read_header(is_final);
      case State::call: return read_call(out, is_final);
      case State::reasoning:
      case State::content: return read_text(out, is_final);
    }
    return false;
  }

  /// A header, or a text without one. The first bytes decide, so that pieces have the result of the whole text.
  bool read_header(bool is_final) {
    Scanner scan(text_, at_, is_final);
    scan.skip_blanks();
    const bool is_header =
        started_ || scan.at_end() || scan.byte() == '<' || scan.follows("to=") || scan.may_follow("to=");
    const std::size_t end = is_header ? rest().find(message_tag) : std::string_view::npos;
    if (end <= longest_header) {
      enter(rest().substr(0, end));
      at_ += end + message_tag.size();
      return true;
    }
    if (is_header && rest().size() <= longest_header + message_tag.size()) return false;
    state_ = State::content;
    return true;
  }

  void enter(std::string_view header) {
    const auto word_behind = [header](std::string_view tag) {
      const std::size_t found = header.find(tag);
      if (found == header.npos) return std::string_view{};
      const std::string_view behind = header.substr(found + tag.size());
      return behind.substr(0, behind.find_first_of(" \n\t<"));
    };
    recipient_ = word_behind("to=");
    if (recipient_ == "user" || recipient_ == "assistant" || recipient_ == "all") recipient_.clear();
    if (recipient_.starts_with("functions.")) recipient_.erase(0, 10);
    if (!recipient_.empty() && reads_calls_) {
      state_ = State::call;
      next_try_ = 0;
    } else {
      state_ = word_behind("<|channel|>") == "analysis" ? State::reasoning : State::content;
    }
  }

  /// A text up to a tag that ends it.
  bool read_text(PartsWriter& out, bool is_final) {
    std::size_t end = std::string_view::npos, held = 0;
    std::string_view found;
    for (const std::string_view tag : ends) {
      const std::size_t at = rest().substr(0, end == std::string_view::npos ? end : end + tag.size()).find(tag);
      if (at < end) {
        end = at;
        found = tag;
      }
      if (!is_final) held = std::max(held, partial_end(rest(), tag));
    }
    const bool has_ended = end != std::string_view::npos;
    const std::size_t ready = has_ended ? end : rest().size() - held;
    state_ == State::reasoning ? out.reasoning(rest().substr(0, ready)) : out.content(rest().substr(0, ready));
    at_ += ready + found.size();
    if (has_ended) end_message(out);
    return has_ended;
  }

  void end_message(PartsWriter& out) {
    state_ == State::reasoning ? out.cut_reasoning() : out.cut_content();
    state_ = State::header;
    started_ = std::string_view(text_).substr(0, at_).ends_with("<|start|>");
  }

  bool read_call(PartsWriter& out, bool is_final) {
    if (!is_final && rest().size() < next_try_) return false;
    next_try_ = rest().size() < 4096 ? 0 : rest().size() + rest().size() / 8;
    Scanner scan(text_, at_, is_final);
    CallList calls(syntax_, tools_);
    if (scan_call(scan, calls)) {
      for (ToolCall& call : calls.take()) out.call(std::move(call));
      at_ = scan.at();
      end_message(out);
      return true;
    }
    if (scan.state() == ScanState::more) return false;
    state_ = State::content;
    return true;
  }

  /// Arguments, possibly none, and the tag that ends the message.
  bool scan_call(Scanner& scan, CallList& calls) const {
    const auto scan_end = [&scan] {
      scan.skip_blanks();
      for (const std::string_view tag : ends) {
        if (scan.follows(tag)) return scan.expect(tag);
      }
      if (scan.at_end() && scan.is_final()) return true;
      return std::any_of(std::begin(ends), std::end(ends), [&](std::string_view tag) { return scan.may_follow(tag); })
                 ? scan.need_more()
                 : scan.fail();
    };
    scan.skip_blanks();
    if (scan.at_end() && !scan.is_final()) return scan.need_more();
    if (scan.at_end() || scan.byte() == '<') return scan_end() && fail_unless(scan, calls.add(recipient_, "{}"));
    return read_arguments(scan, calls, recipient_) && scan_end();
  }

  const AnswerSyntax& syntax_;
  const OfferedTools& tools_;
  bool reads_calls_;
  State state_ = State::header;
  std::string text_;  // not read yet
  std::size_t at_ = 0;
  bool started_ = false;  // the previous message ended with the start of the next one
  std::string recipient_;
  std::size_t next_try_ = 0;
};

}}}
