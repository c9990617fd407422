// The only file of `slm bench` that a GPU compiler compiles, in a GPU build. In other builds it measures the CPU.
#include "bench/device/run.hpp"
#include "slm/backend/select.hpp"

#if defined(__CUDACC__) || defined(__HIP__)
#include "bench/device/target.hpp"
#else
#include "bench/device/cpu_target.hpp"
#endif

namespace slm::bench {

Device this_device(const MeasureOptions& options) {
#if defined(__CUDACC__) || defined(__HIP__)
  return gpu_device(DefaultBackend({.device = options.device}));
#else
  return cpu_device(CpuTarget::threads_of(options), options.isa);
#endif
}

Report measure(const MeasureOptions& options) {
#if defined(__CUDACC__) || defined(__HIP__)
  GpuTarget<DefaultBackend> target(options);
#else
  CpuTarget target(options);
#endif
  return run_on(target, options);
}

}  // namespace slm::bench
