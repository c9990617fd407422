// Common code of the tests on a device.
#pragma once

#include <iostream>

#include "slm/backend/select.hpp"

namespace slm::testing {

using Device = DefaultBackend;
using Runtime = Device::Runtime;

/// Skips a test with a reason if there is no device.
inline bool no_device() {
  if (!Runtime::devices().empty()) return false;
  std::cout << "SKIPPED: no device of the backend " << Runtime::name << ", or no driver for one\n";
  return true;
}

}  // namespace slm::testing
