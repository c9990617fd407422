// Models on emulated devices: a separate source file, since it compiles every GPU kernel.
#include "tools/cli/emulated.hpp"

#include "slm/backend/gpu/lanes.hpp"
#include "slm/model/load.hpp"
#include "tools/cli/gpu.hpp"

namespace cli {

slm::AnyModel load_emulated(const std::string& folder, const std::string& backend, const slm::LoadOptions& options) {
  const slm::backend::GpuOptions staying{.persistent_steps = persistent_steps()};
  if (backend == "lanes64") return slm::load(folder, slm::backend::Lanes64(staying), options);
  return slm::load(folder, slm::backend::Lanes32(staying), options);
}

}  // namespace cli
