// Models on the GPU that the program was compiled for, if it was.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "slm/model/any_model.hpp"
#include "slm/model/load_options.hpp"
#include "slm/ranks/launcher.hpp"

#if SLM_HAS_MPI
#include "tools/cli/rank_models.hpp"
#endif

namespace cli {

/// Of the backend "gpu" or "gpu:1".
inline int number_of_gpu(const std::string& backend) { return backend == "gpu" ? 0 : std::stoi(backend.substr(4)); }

/// Of the environment: whether kernels may begin before the one before them has ended, where a device can do that.
inline bool dependent_launches() {
  const char* const said = std::getenv("SLM_DEPENDENT_LAUNCHES");
  return said == nullptr || std::string(said) != "0";
}

/// Of the environment: whether steps of few rows are kernels that stay.
inline bool persistent_steps() {
  const char* const said = std::getenv("SLM_PERSISTENT_STEPS");
  return said != nullptr && std::string(said) == "1";
}

/// device: its number. Throws cli.no-gpu where the program was compiled for the CPU.
slm::AnyModel load_on_gpu(const std::string& folder, int device, const slm::LoadOptions& options);
/// As its driver names it. Throws cli.no-gpu.
std::string name_of_gpu(int device);

/// The number of this rank's own, where those of the host's ranks begin with `first`. Throws cli.no-gpu, ranks.no-nccl,
/// ranks.devices, gpu.no-device.
int gpu_of_rank(const slm::ranks::Launched& here, int first);

#if SLM_HAS_MPI
/// All of `ranks` at once, each with its own device; here: this rank among all. Throws as gpu_of_rank, and ranks.nccl.
std::unique_ptr<RankModels> models_on_gpus(const slm::ranks::Mpi& ranks, const slm::ranks::Launched& here, int first);
#endif

}  // namespace cli
