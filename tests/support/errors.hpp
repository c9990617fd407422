// The exception of an action.
#pragma once

#include <string>

#include "slm/core/error.hpp"

namespace slm::testing {

/// The id of the action's Error, or "no error".
template <class Action>
std::string error_id(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.id();
  }
  return "no error";
}

}  // namespace slm::testing
