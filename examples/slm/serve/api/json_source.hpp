// Parts of a JSON text as they were written: slm::Json sorts the names of objects, and templates show their order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "slm/io/json.hpp"

namespace serve {

/// Walks over an object or a list in a JSON text that parse_json has accepted.
class JsonSource {
 public:
  explicit JsonSource(std::string_view text) : text_(text) {}

  /// Calls visit(name, value), the value as JSON text.
  template <class Visit>
  void each(Visit&& visit) {
    skip_past('{');
    while (next() == '"') {
      const std::string_view name = value();
      skip_past(':');
      visit(slm::Json::parse(name).get<std::string>(), value());
      if (next() == ',') ++at_;
    }
  }

  /// Calls visit(value) for the values of a list.
  template <class Visit>
  void each_item(Visit&& visit) {
    skip_past('[');
    while (next() != ']' && at_ < text_.size()) {
      visit(value());
      if (next() == ',') ++at_;
    }
  }

  /// The value of a member; empty if absent.
  std::string_view member(std::string_view wanted) {
    std::string_view found;
    each([&](const std::string& name, std::string_view value) { found = name == wanted ? value : found; });
    return found;
  }

 private:
  /// The next character that is no blank; 0 at the end.
  char next() {
    at_ = text_.find_first_not_of(" \t\r\n", at_);
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  /// Behind a sign that nothing but blanks precedes, or a byte order mark.
  void skip_past(char sign) {
    at_ = text_.find(sign, at_);
    at_ = at_ < text_.size() ? at_ + 1 : text_.size();
  }

  /// The value that begins here: a string, or everything up to a comma or bracket that does not belong to it.
  std::string_view value() {
    next();
    const std::size_t begin = at_;
    std::size_t depth = 0;
    for (bool in_string = false; at_ < text_.size(); ++at_) {
      const char byte = text_[at_];
      if (in_string) {
        if (byte == '\\') ++at_;
        in_string = byte != '"';
      } else if (byte == '"') {
        in_string = true;
      } else if (byte == '{' || byte == '[') {
        ++depth;
      } else if (byte == '}' || byte == ']') {
        if (depth == 0) break;
        --depth;
      } else if (depth == 0 && (byte == ',' || byte == ':')) {
        break;
      }
    }
    at_ = std::min(at_, text_.size());
    return text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace serve
