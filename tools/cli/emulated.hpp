// GPU kernels run by the processor, to see what they compute where no GPU is.
#pragma once

#include <string>

#include "slm/model/any_model.hpp"
#include "slm/model/load_options.hpp"

namespace cli {

/// backend: "lanes32" (as NVIDIA's GPUs) or "lanes64" (as AMD's MI250).
slm::AnyModel load_emulated(const std::string& folder, const std::string& backend, const slm::LoadOptions& options);

}  // namespace cli
