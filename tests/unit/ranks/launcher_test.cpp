// What a launcher's environment says of ranks.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>

#include "slm/ranks/launcher.hpp"
#include "support/errors.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

using Environment = std::map<std::string, std::string>;

ranks::Launched launched_in(const Environment& environment) {
  return ranks::launched([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("mpirun and srun say which rank a process is; without them it is one alone") {
  const auto is = [](const Environment& environment, int rank, int size) {
    const ranks::Launched found = launched_in(environment);
    return found.rank == rank && found.size == size;
  };
  CHECK(is({}, 0, 1));
  CHECK(is({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, 3, 4));
  CHECK(is({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, 1, 2));
  // A batch file's own process, and what mpirun starts inside an allocation.
  CHECK(is({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1));
  CHECK(is({{"SLURM_PROCID", "0"},
            {"SLURM_STEP_NUM_TASKS", "1"},
            {"OMPI_COMM_WORLD_RANK", "5"},
            {"OMPI_COMM_WORLD_SIZE", "8"}},
           5, 8));
}

TEST_CASE("an environment that contradicts itself is refused") {
  for (const auto& [rank, size] : {std::pair{"2", "2"},
                                   {"-1", "2"},
                                   {"0", "0"},
                                   {"0", ""},
                                   {"", "2"},
                                   {"0", "2x"},
                                   {"0", "99999999999999999999"},
                                   {"one", "2"}}) {
    CAPTURE(rank, size);
    CHECK(error_id([&] {
            launched_in({{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", size}});
          }) == "ranks.launcher");
  }
  CHECK(error_id([] { launched_in({{"SLURM_STEP_NUM_TASKS", "2"}}); }) == "ranks.launcher");
}
