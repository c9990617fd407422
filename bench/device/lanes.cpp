// A GPU emulated by the CPU. A separate source file, since it compiles every GPU kernel for the CPU.
#include "slm/backend/gpu/lanes.hpp"

#include "bench/device/run.hpp"
#include "bench/device/target.hpp"

namespace slm::bench {

Report measure_lanes32(const MeasureOptions& options) {
  GpuTarget<backend::Lanes32> target(options);
  return run_on(target, options);
}

}  // namespace slm::bench
