// The program as one of several ranks, started by mpirun or srun: rank 0 runs the command, the others take part in its
// steps.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/model/load_options.hpp"
#include "tools/cli/rank_speed.hpp"

namespace cli {

/// Joins the ranks that a launcher started. command: the subcommand (for bench with its own subcommand), which must
/// support several ranks. Throws ranks.launcher, ranks.no-mpi, ranks.command.
void join_ranks(std::string_view command);
/// Call at the end of main(): waits for the other ranks, or ends them if this one has failed. Returns the exit status.
int leave_ranks(int status);

/// Before join_ranks(), or without a launcher: rank 0 of 1.
int rank();
int rank_count();

/// On ranks other than 0: executes rank 0's commands until the end.
void help_first_rank();

/// On rank 0: measures all ranks at the same time; threads: per rank.
RankSpeed measure_ranks(int threads);

/// On rank 0, before loading: the last `count` ranks hold drafts from now on, the others targets. Throws ranks.draft.
void set_draft_ranks(int count);

/// The devices of a model's ranks.
struct RankDevice {
  std::optional<int> first_gpu = {};  // index of the first GPU on every host, one GPU per rank; empty: CPUs
  slm::backend::CpuOptions cpu = {};  // for CPUs
};

/// On rank 0: loads a model distributed over all ranks, in `stages` pipeline stages. After set_draft_ranks(): over the
/// ranks that hold targets. fast_reduce: see slm::Sharing. Throws the errors of gpu_of_rank().
slm::AnyModel load_on_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                            int stages, bool fast_reduce);
/// The same on the ranks that hold drafts; rank 0 is not one of them.
slm::AnyModel load_on_draft_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                                  bool fast_reduce);

}  // namespace cli
