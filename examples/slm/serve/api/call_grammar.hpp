// CallForm: how a model writes a call, as far as a grammar needs it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/grammar.hpp"
#include "tools/cli/chat_format.hpp"

namespace serve {

/// head NAME middle ARGUMENTS tail, with arguments as a JSON object.
class CallForm {
 public:
  /// Found in the template's own rendering of a call. Nothing: arguments are not JSON, or the template shows no call.
  static std::optional<CallForm> of(const cli::ChatFormat& format);

  /// The text of a call of this tool up to its arguments.
  std::string before_arguments(const std::string& name) const { return head_ + name + middle_; }

  /// One call of one of the tools; named: only of this one, unless it is empty. tools: a JSON list. Throws Error.
  slm::Grammar call(std::string_view tools, std::string_view named) const;

  /// The tag that only calls begin with; empty: the form has none, or one for a list of calls.
  const std::string& opening() const { return opening_; }
  /// A call without its opening tag. A schema that the grammar does not support permits any object.
  slm::Grammar call_behind_opening(std::string_view tools) const;

 private:
  slm::Grammar call_of(const std::string& name, std::string_view schema, std::size_t skipped) const;

  std::string opening_, head_, middle_, tail_;
};

}  // namespace serve
