// Models on emulated devices: a separate source file, since it compiles every GPU kernel.
#include "tools/cli/emulated.hpp"

#if SLM_HAS_LANES
#include "slm/backend/gpu/lanes.hpp"
#include "slm/core/os/path.hpp"
#include "slm/model/load.hpp"
#include "tools/cli/gpu.hpp"
#else
#include "slm/core/error.hpp"
#endif

namespace cli {

slm::AnyModel load_emulated(const std::string& folder, const std::string& backend, const slm::LoadOptions& options) {
#if SLM_HAS_LANES
  const slm::backend::GpuOptions staying{.persistent_steps = persistent_steps()};
  if (backend == "lanes64") return slm::load(slm::path_of(folder), slm::backend::Lanes64(staying), options);
  return slm::load(slm::path_of(folder), slm::backend::Lanes32(staying), options);
#else
  static_cast<void>(options);
  throw slm::Error("cli.no-gpu", slm::text("'", folder, "' was to run on ", backend, ", which this slm does not have"),
                   "Use --backend cpu, or configure slm with -DSLM_BUILD_TESTS=ON, on the machine that is to run it");
#endif
}

}  // namespace cli
