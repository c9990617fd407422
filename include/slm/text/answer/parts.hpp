// The parts of an answer: reasoning, content and calls.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/answer/scanner.hpp"

namespace slm { inline namespace v0_1 {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object; numbers have all digits that the model wrote
  std::string id = {};    // of models whose templates show it; else empty
};

/// New text of an answer, or a call.
struct AnswerPart {
  enum class Kind { reasoning, content, call };

  Kind kind = Kind::content;
  std::string text = {};  // of reasoning and content
  ToolCall call = {};
};

namespace detail {

/// One text of an answer, written in stretches: blanks around a cut are dropped, and stretches are joined by a newline.
class Stretches {
 public:
  explicit Stretches(bool begins_cut) : is_cut_(begins_cut) {}

  void add(std::string_view text, std::string& out) {
    std::size_t last = text.size();
    while (last > 0 && is_blank(text[last - 1])) --last;
    std::size_t first = 0;
    while (first < last && is_blank(text[first])) ++first;
    if (last == 0) {
      blanks_ += text;
      return;
    }
    blanks_ += text.substr(0, first);
    if (!is_cut_) {
      out += blanks_;
    } else if (begun_) {
      out += '\n';
    }
    out += text.substr(first, last - first);
    blanks_ = text.substr(last);
    begun_ = true;
    is_cut_ = false;
  }

  /// The stretch ends.
  void cut() {
    blanks_.clear();
    is_cut_ = true;
  }

  /// Blanks at the end of the text, which belong to it where nothing was cut.
  std::string finish() { return is_cut_ ? std::string{} : std::exchange(blanks_, {}); }

 private:
  std::string blanks_;  // not written yet
  bool is_cut_, begun_ = false;
};

/// Collects parts.
class PartsWriter {
 public:
  void content(std::string_view text) { add(AnswerPart::Kind::content, content_, text); }
  void reasoning(std::string_view text) { add(AnswerPart::Kind::reasoning, reasoning_, text); }
  void cut_content() { content_.cut(); }
  void cut_reasoning() { reasoning_.cut(); }

  void call(ToolCall call) {
    content_.cut();
    parts_.push_back({AnswerPart::Kind::call, {}, std::move(call)});
    ++calls_;
  }

  void finish() {
    std::string blanks = content_.finish();
    if (calls_ == 0 && !blanks.empty()) append(AnswerPart::Kind::content, std::move(blanks));
  }

  std::size_t calls() const { return calls_; }
  std::vector<AnswerPart> take() { return std::exchange(parts_, {}); }

 private:
  void add(AnswerPart::Kind kind, Stretches& stretches, std::string_view text) {
    std::string out;
    stretches.add(text, out);
    if (!out.empty()) append(kind, std::move(out));
  }

  void append(AnswerPart::Kind kind, std::string text) {
    if (!parts_.empty() && parts_.back().kind == kind) {
      parts_.back().text += text;
    } else {
      parts_.push_back({kind, std::move(text), {}});
    }
  }

  Stretches content_{false}, reasoning_{true};
  std::vector<AnswerPart> parts_;
  std::size_t calls_ = 0;
};

}  // namespace detail

}}
