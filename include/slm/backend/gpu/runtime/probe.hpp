// ProbeKernel: queries properties of the device code when a runtime is created.
#pragma once

#include "slm/backend/gpu/runtime/launch.hpp"

namespace slm { inline namespace v0_1 { namespace gpu::detail {

/// Reports the wave width of the compiled device code, and whether its kernels support dependent launches. Code for an
/// older architecture, which the driver may translate for a newer device, does not.
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
