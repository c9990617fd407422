// CallForm: how a model writes a call, as far as a grammar needs it.
#pragma once

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

 private:
  std::string head_, middle_, tail_;
};

}  // namespace serve
