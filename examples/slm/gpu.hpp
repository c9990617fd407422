// Models on the GPU that the program was compiled for, if it was.
#pragma once

#include <string>

#include "slm/model/any_model.hpp"
#include "slm/model/model.hpp"

namespace cli {

/// device: its number. Throws cli.no-gpu where the program was compiled for the CPU.
slm::AnyModel load_on_gpu(const std::string& folder, int device, const slm::LoadOptions& options);

}  // namespace cli
