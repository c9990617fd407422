// GPUs that the processor emulates: a source file of its own, as it compiles every GPU kernel for the processor.
#include "slm/backend/gpu/lanes.hpp"

#include "bench/device/run.hpp"
#include "bench/device/target.hpp"

namespace slm::bench {

Report measure_lanes32(const MeasureOptions& options) {
  GpuTarget<backend::Lanes32> target(options);
  return run_on(target, options);
}

Report measure_lanes64(const MeasureOptions& options) {
  GpuTarget<backend::Lanes64> target(options);
  return run_on(target, options);
}

}  // namespace slm::bench
