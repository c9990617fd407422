// The calls of a scanned stretch of an answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/answer/json_scan.hpp"
#include "slm/text/answer/parts.hpp"
#include "slm/text/answer/syntax.hpp"
#include "slm/text/answer/tools.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Checks calls as they are found.
class CallList {
 public:
  CallList(const AnswerSyntax& syntax, const OfferedTools& tools) : syntax_(&syntax), tools_(&tools) {}

  const AnswerSyntax& syntax() const { return *syntax_; }
  const OfferedTools& tools() const { return *tools_; }
  std::vector<ToolCall> take() { return std::move(calls_); }
  bool empty() const { return calls_.empty() && !answers_directly_; }

  /// A call with arguments as a JSON text. False: it is no call.
  bool add(std::string_view name, std::string_view arguments, std::string id = {}) {
    if (name.empty() || name.size() > Scanner::longest_name) return false;
    if (syntax_->name == "command-r" && name == "directly_answer") return answers_directly_ = true;
    if (syntax_->offered_only && !tools_->has(name)) return false;
    if (!is_json_object(arguments)) return false;
    calls_.push_back({std::string(name), std::string(arguments), std::move(id)});
    return true;
  }

  /// A call as a scanned JSON object. is_bare: without tags, so that the name must be known and arguments present.
  bool add_object(std::string_view object, bool is_bare = false) {
    if (!object.starts_with('{')) return false;
    std::string_view name_source, arguments;
    const bool is_sound = each_json_member(object, [&](const std::string& name, std::string_view value) {
      if (name == "name" || name == "tool_name") name_source = value;
      if (name == "arguments" || name == "parameters") arguments = value;
    });
    std::string name, text;
    if (!is_sound || !name_source.starts_with('"') || !read_json_string(name_source, name)) return false;
    if (is_bare && (arguments.empty() || !tools_->has(name))) return false;
    if (arguments.starts_with('"')) {  // some models encode them twice
      if (!read_json_string(arguments, text)) return false;
      arguments = trimmed(text);
    }
    return add(name, arguments.empty() || arguments == "null" ? "{}" : arguments);
  }

  /// A scanned JSON value: one call or a list of calls.
  bool add_value(std::string_view value) {
    if (!value.starts_with('[')) return add_object(value);
    bool is_sound = true;
    each_json_element(value, [&](std::string_view element) { is_sound = is_sound && add_object(element); });
    return is_sound && !empty();
  }

  /// A scanned JSON list of objects with one member, NAME: arguments.
  bool add_named(std::string_view value) {
    if (!value.starts_with('[')) return false;
    bool is_sound = true;
    each_json_element(value, [&](std::string_view element) {
      std::size_t members = 0;
      is_sound = is_sound && element.starts_with('{') &&
                 each_json_member(element,
                                  [&](const std::string& name, std::string_view arguments) {
                                    ++members;
                                    is_sound = is_sound && add(name, arguments == "null" ? "{}" : arguments);
                                  }) &&
                 members == 1;
    });
    return is_sound && !empty();
  }

 private:
  const AnswerSyntax* syntax_;
  const OfferedTools* tools_;
  std::vector<ToolCall> calls_;
  bool answers_directly_ = false;
};

}}}
