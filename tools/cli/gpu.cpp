// Models on the GPU: the only file of the program that a GPU compiler compiles, in a build tree for GPUs.
#include "tools/cli/gpu.hpp"

#if defined(__CUDACC__) || defined(__HIP__)
#include "slm/core/os/path.hpp"
#include "slm/model/load.hpp"
#else
#include "slm/core/error.hpp"
#endif

#if SLM_HAS_NCCL
#include <unistd.h>

#include <array>

#include "slm/backend/split.hpp"
#include "slm/model/load_definition.hpp"
#include "slm/ranks/devices.hpp"
#include "slm/ranks/nccl.hpp"

namespace {
using Runtime = slm::DefaultBackend::Runtime;
using Nccl = slm::ranks::Nccl<Runtime, slm::ranks::Mpi>;
}  // namespace

template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&,
                                                  slm::backend::Split<slm::DefaultBackend, Nccl>,
                                                  const slm::LoadOptions&);
#endif

namespace cli {

namespace {

#if defined(__CUDACC__) || defined(__HIP__)
slm::DefaultBackend open_gpu(int device) {
  return slm::backend::GpuOptions{
      .device = device, .dependent_launches = dependent_launches(), .persistent_steps = persistent_steps()};
}
#else
slm::Error no_gpu(const std::string& sentence) {
  return {"cli.no-gpu", sentence + ", but this slm was built for the CPU",
          "Build it with cmake --preset cuda, hip-mi250 or hip-radeon, or use --backend cpu"};
}
#endif

#if SLM_HAS_NCCL
/// A name that is unique among the devices of all hosts.
std::string name_of(const Runtime& runtime) {
#if defined(__CUDACC__)
  using Api = slm::gpu::CudaApi;
#else
  using Api = slm::gpu::HipApi;
#endif
  Api::Properties at{};
  Runtime::require(Api::GetDeviceProperties(&at, runtime.index()), "GetDeviceProperties");
  std::array<char, 128> host{};
  gethostname(host.data(), host.size() - 1);
  return slm::text(runtime.info().name, " of ", host.data(), " at PCI ", at.pciDomainID, ":", at.pciBusID, ":",
                   at.pciDeviceID);
}
#endif

}  // namespace

slm::AnyModel load_on_gpu(const std::string& folder, int device, const slm::LoadOptions& options) {
#if defined(__CUDACC__) || defined(__HIP__)
  static slm::DefaultBackend first = open_gpu(device);  // draft and target share its stream
  if (first.runtime().index() != device) return slm::load(slm::path_of(folder), open_gpu(device), options);
  return slm::load(slm::path_of(folder), first, options);
#else
  static_cast<void>(options);
  throw no_gpu(slm::text("'", folder, "' was to run on GPU ", device));
#endif
}

std::string name_of_gpu(int device) {
#if defined(__CUDACC__) || defined(__HIP__)
  return open_gpu(device).info().name;
#else
  throw no_gpu(slm::text("expected the name of GPU ", device));
#endif
}

int gpu_of_rank([[maybe_unused]] const slm::ranks::Launched& here, [[maybe_unused]] int first) {
#if SLM_HAS_NCCL
  const auto seen = static_cast<int>(Runtime::devices().size());
  return Runtime(seen == 0 ? first : slm::ranks::device_of(here, seen, first)).index();  // throws if there is none
#elif defined(__CUDACC__) || defined(__HIP__)
  throw slm::Error("ranks.no-nccl", slm::text(here.size, " ranks need a GPU each, but this slm was built without NCCL"),
                   "Install MPI and NCCL (libnccl-dev), or on AMD RCCL (rccl-dev), configure and build again");
#else
  throw no_gpu(slm::text(here.size, " ranks need a GPU each"));
#endif
}

#if SLM_HAS_MPI
std::unique_ptr<RankModels> models_on_gpus([[maybe_unused]] const slm::ranks::Mpi& ranks,
                                           const slm::ranks::Launched& here, int first) {
  [[maybe_unused]] const int device = gpu_of_rank(here, first);
#if SLM_HAS_NCCL
  const slm::DefaultBackend own(device);
  slm::ranks::require_own_device(ranks, here.rank, name_of(own.runtime()));
  const Nccl devices(ranks, own.runtime(), patience());
  return std::make_unique<RankModelsOn<slm::DefaultBackend, Nccl>>(own, devices);
#else
  return nullptr;  // not reached: gpu_of_rank() throws
#endif
}
#endif

}  // namespace cli
