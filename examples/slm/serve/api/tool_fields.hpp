// The fields of a chat that offer tools to the model, and how its answer begins.
#pragma once

#include <string>
#include <vector>

#include "api/fields.hpp"
#include "slm/chat/format.hpp"

namespace serve {

using slm::Reasoning;

enum class ToolChoice { none, automatic, required };

struct ToolFields {
  std::string list;                      // the tools as JSON, in the order of the request; empty: none offered
  std::vector<std::string> names = {};   // of the offered tools
  ToolChoice choice = ToolChoice::none;  // required: the answer is a call
  std::string named = {};                // the tool that must be called; empty: any
  bool parallel = true;                  // the answer may have several calls
};

/// With `tool_choice` none, no tool is offered. Throws Refusal.
ToolFields read_tools(const Fields& fields);

}  // namespace serve
