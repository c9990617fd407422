// default_device: the device for models that are loaded without one.
#pragma once

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Returns a handle of a process-wide device if the backend has threads, so that several models do not compete for
/// cores. Otherwise returns a new device.
template <class B>
B default_device() {
  if constexpr (requires { B::shared(); }) {
    return B::shared();
  } else {
    return B{};
  }
}

}}}
