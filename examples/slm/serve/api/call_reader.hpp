// CallReader: reads the call of an answer that must be one, while the model writes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/chat/answer_grammar.hpp"

namespace serve {

/// A grammar holds the text, so that a call is certain from its name on, and its arguments are a JSON object.
class CallReader {
 public:
  /// Reasoning between the tags may precede the call. names: of the tools. begun: the text begins inside of reasoning.
  CallReader(slm::CallForm form, std::vector<std::string> names, std::string_view begin, std::string_view end,
             bool begun)
      : form_(std::move(form)), names_(std::move(names)), begin_(begin), end_(end), reasons_(begun) {}

  void push(std::string_view piece) {
    if (state_ == State::over) return;
    text_ += piece;
    if (state_ == State::before) read_name();
    if (state_ == State::arguments) read_arguments();
  }

  /// Whether the name of the call is known.
  bool begun() const { return state_ != State::before; }
  const std::string& name() const { return name_; }
  /// The arguments since the last call.
  std::string take() { return std::exchange(arguments_, {}); }

 private:
  enum class State { before, arguments, over };

  void read_name() {
    std::string_view text = text_;
    const auto skip_blanks = [&text] { text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size())); };
    skip_blanks();
    if (reasons_ || (!begin_.empty() && text.starts_with(begin_))) {
      const std::size_t close = text.find(end_);
      if (close == text.npos) return;
      text.remove_prefix(close + end_.size());
      skip_blanks();
    }
    for (const std::string& name : names_) {
      const std::string before = form_.before_arguments(name);
      const std::string_view start =
          std::string_view(before).substr(std::min(before.find_first_not_of(" \n"), before.size()));
      if (!text.starts_with(start)) continue;
      name_ = name;
      state_ = State::arguments;
      text_.erase(0, text_.size() - text.size() + start.size());
      return;
    }
  }

  void read_arguments() {
    std::size_t at = 0;
    while (at < text_.size() && state_ == State::arguments) {
      const char byte = text_[at++];
      if (escaped_ || (quoted_ && byte == '\\')) {
        escaped_ = !escaped_;
      } else if (byte == '"') {
        quoted_ = !quoted_;
      } else if (!quoted_ && (byte == '{' || byte == '[')) {
        ++depth_;
      } else if (!quoted_ && (byte == '}' || byte == ']') && --depth_ == 0) {
        state_ = State::over;
      }
    }
    arguments_.append(text_, 0, at);
    text_.clear();
  }

  const slm::CallForm form_;
  const std::vector<std::string> names_;
  const std::string begin_, end_;
  const bool reasons_;
  State state_ = State::before;
  std::string text_;  // not read yet
  std::string name_, arguments_;
  std::size_t depth_ = 0;
  bool quoted_ = false, escaped_ = false;
};

}  // namespace serve
