// What a device's code says of itself when a runtime is made for the device.
#pragma once

#include "slm/backend/gpu/runtime/launch.hpp"

namespace slm { inline namespace v0_1 { namespace gpu::detail {

/// Tells the wave width that the code for this device was compiled for, and whether its kernels wait for the one before
/// them, so that they may be launched to begin earlier: code for an older architecture, which the driver may have
/// translated for a newer device, does not.
struct ProbeKernel {
  struct Found {
    int width, dependent;
  };
  struct Args {
    Found* found;
  };
  struct Shared {};
  static constexpr int max_block = 64;
  static Grid grid(const Args&, int wave_width) { return {.threads = wave_width}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    if (lane.thread() == 0) *args.found = {Lane::width, Lane::dependent ? 1 : 0};
  }
};

}}}
