// Reads the environment that mpirun and srun set for their processes.
#pragma once

#include <charconv>
#include <cstring>
#include <optional>
#include <string>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

struct Launched {
  int rank = 0;
  int size = 1;
  std::optional<int> local = {};  // number among the ranks of its host, if the launcher states it
};

/// variable(name): the environment variable's value, or null. Without a launcher there is one rank. Throws
/// ranks.launcher if the environment is inconsistent.
template <class Variable>
Launched launched(Variable variable) {
  struct Names {
    const char *rank, *size, *local;
  };
  // Inside a SLURM allocation mpirun starts the ranks, unless srun has created a step.
  for (const Names names : {Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                            Names{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}}) {
    const auto number = [&](const char* name) -> std::optional<int> {
      const char* const value = variable(name);
      if (value == nullptr) return std::nullopt;
      int found = -1;
      const char* const end = value + std::strlen(value);
      const auto [stopped, fault] = std::from_chars(value, end, found);
      return fault == std::errc{} && stopped == end ? found : -1;
    };
    const std::optional<int> size = number(names.size), rank = number(names.rank), local = number(names.local);
    if (!size) continue;
    const bool is_rank = rank && *size >= 1 && *rank >= 0 && *rank < *size;
    if (is_rank && (!local || (*local >= 0 && *local < *size))) return {*rank, *size, local};
    const char* const other = is_rank ? names.local : names.rank;
    const char* const said = variable(other);
    throw Error("ranks.launcher",
                text("expected a consistent environment, found ", names.size, "=", quote(variable(names.size)), " and ",
                     other, "=", said == nullptr ? std::string("nothing") : quote(said)),
                "Start the program by mpirun or srun, or remove these variables to run it alone");
  }
  return {};
}

}}}
