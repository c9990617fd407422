// Models on the GPU, if the program was compiled for one.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "slm/lm/any_model.hpp"
#include "slm/model/load_options.hpp"
#include "slm/ranks/launcher.hpp"

#if SLM_HAS_MPI
#include "tools/cli/rank_models.hpp"
#endif

namespace cli {

/// The device index of "gpu" or "gpu:1".
inline int number_of_gpu(const std::string& backend) { return backend == "gpu" ? 0 : std::stoi(backend.substr(4)); }

/// SLM_DEPENDENT_LAUNCHES: use dependent launches if the device supports them.
inline bool dependent_launches() {
  const char* const said = std::getenv("SLM_DEPENDENT_LAUNCHES");
  return said == nullptr || std::string(said) != "0";
}

/// SLM_PERSISTENT_STEPS: use persistent kernels for steps of few rows.
inline bool persistent_steps() {
  const char* const said = std::getenv("SLM_PERSISTENT_STEPS");
  return said != nullptr && std::string(said) == "1";
}

/// device: index. Throws cli.no-gpu if the program was compiled for the CPU.
slm::AnyModel load_on_gpu(const std::string& folder, int device, const slm::LoadOptions& options);
/// The driver's name of the device. Throws cli.no-gpu.
std::string name_of_gpu(int device);

/// The device index of this rank, if the host's ranks use devices from `first` on. Throws cli.no-gpu, ranks.no-nccl,
/// ranks.devices, gpu.no-device.
int gpu_of_rank(const slm::ranks::Launched& here, int first);

#if SLM_HAS_MPI
/// Collective over `ranks`, each with its own device. here: this rank among all. Throws like gpu_of_rank, and
/// ranks.nccl.
std::unique_ptr<RankModels> models_on_gpus(const slm::ranks::Mpi& ranks, const slm::ranks::Launched& here, int first);
#endif

}  // namespace cli
