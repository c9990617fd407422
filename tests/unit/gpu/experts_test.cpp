// Mixtures of experts on emulated devices of every matrix layout, threads forward and backward.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_experts.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;
using backend::Lanes64;
using backend::LanesRdna;

TEST_CASE("mixtures of experts on 32 lanes") {
  for (const MixtureCase& of : mixture_cases) {
    check_experts<Lanes32, Fp32>(of, Lanes32{});
    check_experts<Lanes32, Bf16>(of, Lanes32{1});
  }
}
TEST_CASE("mixtures of experts on 64 lanes") {
  for (const MixtureCase& of : mixture_cases) check_experts<Lanes64, Fp32>(of, Lanes64{1});
}
TEST_CASE("mixtures of experts on lanes of RDNA3") {
  for (const MixtureCase& of : mixture_cases) check_experts<LanesRdna, Fp32>(of, LanesRdna{});
}
