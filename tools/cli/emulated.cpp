// Models on emulated devices: a source file of its own, as it reads every GPU kernel.
#include "tools/cli/emulated.hpp"

#include "slm/backend/gpu/lanes.hpp"
#include "slm/model/load.hpp"

namespace cli {

slm::AnyModel load_emulated(const std::string& folder, const std::string& backend, const slm::LoadOptions& options) {
  if (backend == "lanes64") return slm::load<slm::Registry<>>(folder, slm::backend::Lanes64{}, options);
  return slm::load<slm::Registry<>>(folder, slm::backend::Lanes32{}, options);
}

}  // namespace cli
