// TaggedReader: reads answers whose calls and reasoning are between tags.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "slm/text/answer/bodies.hpp"
#include "slm/text/answer/parts.hpp"
#include "slm/text/answer/syntax.hpp"
#include "slm/text/answer/tools.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Reads an answer that arrives in pieces. The parts do not depend on the pieces. Time is linear in the answer.
class TaggedReader {
 public:
  TaggedReader(const AnswerSyntax& syntax, const ReasoningTags& reasoning, const OfferedTools& tools, bool reads_calls,
               bool begins_in_reasoning)
      : syntax_(syntax),
        reasoning_(reasoning),
        tools_(tools),
        reads_calls_(reads_calls),
        state_(begins_in_reasoning ? State::reasoning_begin : State::begin) {}

  void push(std::string_view piece, PartsWriter& out) {
    text_ += piece;
    read(out, false);
    text_.erase(0, std::exchange(at_, 0));
  }

  void finish(PartsWriter& out) { read(out, true); }

 private:
  enum class State {
    begin,            // reasoning may begin
    reasoning_begin,  // the prompt has begun it
    reasoning,
    answer_begin,  // behind the reasoning
    bare,          // in a call without tags
    plain,
    section,  // behind the opening tag of calls, which is in held_
    call,     // at the tag that begins a call
  };

  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  void skip(std::size_t bytes) { at_ += bytes; }

  /// Reads until more text is needed.
  void read(PartsWriter& out, bool is_final) {
    while (step(out, is_final)) continue;
    if (is_final && state_ == State::reasoning) out.reasoning(rest());
    if (is_final && state_ != State::reasoning) out.content(held_ + std::string(rest()));
    if (is_final) at_ = text_.size();
  }

  /// False: more text is needed.
  bool step(PartsWriter& out, bool is_final) {
    switch (state_) {
      case State::begin:
      case State::reasoning_begin: return begin(is_final);
      case State::reasoning: return reason(out);
      case State::answer_begin: return begin_answer(is_final);
      case State::bare: return read_bare(out, is_final);
      case State::plain: return plain(out, is_final);
      case State::section: return enter_section(out, is_final);
      case State::call: return read_call(out, is_final);
    }
    return false;
  }

  bool begin(bool is_final) {
    Scanner scan(text_, at_, is_final);
    scan.skip_blanks();
    const bool has_begun = state_ == State::reasoning_begin;
    if (!is_final && (scan.at_end() || scan.may_follow(reasoning_.open))) return false;
    if (scan.follows(reasoning_.open)) {
      at_ = scan.at() + reasoning_.open.size();
      state_ = State::reasoning;
    } else {
      state_ = has_begun ? State::reasoning : State::answer_begin;
    }
    return true;
  }

  bool reason(PartsWriter& out) {
    const std::size_t end = rest().find(reasoning_.close);
    if (end != std::string_view::npos) {
      out.reasoning(rest().substr(0, end));
      out.cut_content();
      skip(end + reasoning_.close.size());
      has_reasoned_ = true;
      state_ = State::answer_begin;
      return true;
    }
    const std::size_t ready = rest().size() - partial_end(rest(), reasoning_.close);
    out.reasoning(rest().substr(0, ready));
    skip(ready);
    return false;
  }

  bool begin_answer(bool is_final) {
    Scanner scan(text_, at_, is_final);
    scan.skip_blanks();
    if (!is_final && scan.at_end()) return false;
    state_ = State::plain;
    if (!reads_calls_) return true;
    const std::string_view first = syntax_.first_begin;
    if (!first.empty() && scan.may_follow(first)) {
      state_ = State::answer_begin;
      return false;
    }
    const char bare = syntax_.bare == BareCall::json ? '{' : syntax_.bare == BareCall::python ? '[' : '\0';
    if (!first.empty() && scan.follows(first)) {
      at_ = scan.at();
      enter_call(first.size());
    } else if (bare != '\0' && scan.byte() == bare) {
      state_ = State::bare;
    }
    return true;
  }

  bool read_bare(PartsWriter& out, bool is_final) {
    if (!may_try(is_final)) return false;
    Scanner scan(text_, at_, is_final);
    CallList calls(syntax_, tools_);
    scan.skip_blanks();
    const bool is_json = syntax_.bare == BareCall::json;
    const bool is_sound = is_json ? read_json_sequence(scan, calls, true) : read_python_list(scan, calls, true);
    if (is_sound) scan.skip_blanks();
    if (is_sound && scan.at_end() && is_final) {
      at_ = scan.at();
      for (ToolCall& call : calls.take()) out.call(std::move(call));
      state_ = State::plain;
      return true;
    }
    if (!is_final && (is_sound ? scan.at_end() : scan.state() == ScanState::more)) return false;
    state_ = State::plain;
    return true;
  }

  /// The text up to the next tag.
  bool plain(PartsWriter& out, bool is_final) {
    const std::string_view all = rest();
    const bool drops = !syntax_.response.open.empty() && (has_reasoned_ || !syntax_.response_after_reasoning);
    struct Tag {
      std::string_view word;
      State state;
    };
    const std::array<Tag, 6> tags{{{reads_calls_ ? syntax_.open : "", State::section},
                                   {reads_calls_ ? syntax_.begin : "", State::call},
                                   {reads_calls_ ? syntax_.other_begin : "", State::call},
                                   {section_called_ ? syntax_.close : "", State::plain},
                                   {drops ? syntax_.response.open : "", State::plain},
                                   {drops ? syntax_.response.close : "", State::plain}}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string_view here = all.substr(i);
      for (const Tag& tag : tags) {
        if (tag.word.empty() || tag.word.front() != here.front()) continue;
        if (here.size() < tag.word.size() && !is_final && tag.word.starts_with(here)) {
          out.content(all.substr(0, i));
          skip(i);
          return false;
        }
        if (!here.starts_with(tag.word)) continue;
        out.content(all.substr(0, i));
        skip(i);
        if (tag.state == State::section) {
          held_ = tag.word;
          skip(tag.word.size());
          section_called_ = false;
          state_ = State::section;
        } else if (tag.state == State::call) {
          enter_call(tag.word.size());
        } else {
          if (tag.word == syntax_.close) section_called_ = false;
          out.cut_content();
          skip(tag.word.size());
        }
        return true;
      }
    }
    out.content(all);
    skip(all.size());
    return false;
  }

  bool enter_section(PartsWriter& out, bool is_final) {
    Scanner scan(text_, at_, is_final);
    scan.skip_blanks();
    held_ += scan.from(at_);
    at_ = scan.at();
    if (!is_final && (scan.at_end() || scan.may_follow(syntax_.begin))) return false;
    if (scan.follows(syntax_.begin)) {
      enter_call(syntax_.begin.size());
    } else {
      out.content(std::exchange(held_, {}));
      state_ = State::plain;
    }
    return true;
  }

  void enter_call(std::size_t tag) {
    tag_ = tag;
    next_try_ = 0;
    state_ = State::call;
  }

  bool read_call(PartsWriter& out, bool is_final) {
    if (!may_try(is_final)) return false;
    Scanner scan(text_, at_ + tag_, is_final);
    CallList calls(syntax_, tools_);
    if (read_body(scan, calls)) {
      for (ToolCall& call : calls.take()) out.call(std::move(call));
      out.cut_content();
      held_.clear();
      section_called_ = true;
    } else if (scan.state() == ScanState::more) {
      return false;
    } else {
      out.content(std::exchange(held_, {}));
      out.content(scan.from(at_));
    }
    at_ = scan.at();
    state_ = State::plain;
    return true;
  }

  /// A long call is read again only when it has grown by an eighth, so that the time for all attempts is linear.
  bool may_try(bool is_final) {
    const std::size_t size = rest().size();
    if (!is_final && size < next_try_) return false;
    next_try_ = size < 4096 ? 0 : size + size / 8;
    return true;
  }

  const AnswerSyntax& syntax_;
  ReasoningTags reasoning_;
  const OfferedTools& tools_;
  bool reads_calls_;
  State state_;
  std::string text_;    // not read yet
  std::size_t at_ = 0;  // position in it
  std::string held_;    // the opening tag of calls, until a call follows
  std::size_t tag_ = 0, next_try_ = 0;
  bool has_reasoned_ = false, section_called_ = false;
};

}}}
