// Models on the GPU: the one file of the program that a GPU's compiler sees, in a build tree for one.
#include "tools/cli/gpu.hpp"

#if defined(__CUDACC__) || defined(__HIP__)
#include "slm/model/load.hpp"
#else
#include "slm/core/error.hpp"
#endif

namespace cli {

#if defined(__CUDACC__) || defined(__HIP__)
namespace {
slm::DefaultBackend open_gpu(int device) {
  return slm::backend::GpuOptions{.device = device, .dependent_launches = dependent_launches()};
}
}  // namespace
#endif

slm::AnyModel load_on_gpu(const std::string& folder, int device, const slm::LoadOptions& options) {
#if defined(__CUDACC__) || defined(__HIP__)
  static slm::DefaultBackend first = open_gpu(device);  // draft and target share its stream
  if (first.runtime().index() != device) return slm::load<slm::Registry<>>(folder, open_gpu(device), options);
  return slm::load<slm::Registry<>>(folder, first, options);
#else
  static_cast<void>(options);
  throw slm::Error("cli.no-gpu",
                   slm::text("'", folder, "' was to run on GPU ", device, ", and this slm was built for the CPU"),
                   "Build it with cmake --preset cuda, hip-mi250 or hip-radeon, or use --backend cpu");
#endif
}

std::string name_of_gpu(int device) {
#if defined(__CUDACC__) || defined(__HIP__)
  return open_gpu(device).info().name;
#else
  throw slm::Error("cli.no-gpu", slm::text("there is no name of GPU ", device, ": this slm was built for the CPU"),
                   "Build it with cmake --preset cuda, hip-mi250 or hip-radeon, or use --backend cpu");
#endif
}

}  // namespace cli
