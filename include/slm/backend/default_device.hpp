// default_device: what a model runs on whose user names no device.
#pragma once

namespace slm { inline namespace v0_1 { namespace backend {

/// A handle of one device for the whole process where the backend has threads of its own, so that several models do not
/// compete with each other for the cores; else a new device.
template <class B>
B default_device() {
  if constexpr (requires { B::shared(); }) {
    return B::shared();
  } else {
    return B{};
  }
}

}}}
