// GPU kernels emulated on the CPU, to check their results without a GPU.
#pragma once

#include <string>

#include "slm/lm/any_model.hpp"
#include "slm/model/load_options.hpp"

namespace cli {

/// backend: "lanes32" (like NVIDIA GPUs) or "lanes64" (like AMD MI250).
slm::AnyModel load_emulated(const std::string& folder, const std::string& backend, const slm::LoadOptions& options);

}  // namespace cli
