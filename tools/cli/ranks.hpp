// The program as one of several ranks, as mpirun and srun start it: the first runs the command, the others help.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/model/any_model.hpp"
#include "slm/model/load_options.hpp"
#include "tools/cli/rank_speed.hpp"

namespace cli {

/// Joins the ranks that a launcher has started together with this process, if it has. command: the subcommand, of bench
/// with its own, which must be one that uses all of them. Throws ranks.launcher, ranks.no-mpi, ranks.command.
void join_ranks(std::string_view command);
/// The end of main(): other ranks are waited for, or ended with this one when it has failed. Returns the status.
int leave_ranks(int status);

/// Before join_ranks() and alone: rank 0 of 1.
int rank();
int rank_count();

/// Behind the first rank: does what that one tells, until it is through.
void help_first_rank();

/// On the first rank: what all ranks give at once, each with so many threads.
RankSpeed measure_ranks(int threads);

/// On the first rank, before anything is loaded: the last `count` ranks hold drafts from now on, the others targets.
/// Throws ranks.draft.
void set_draft_ranks(int count);

/// What the ranks of a model compute on.
struct RankDevice {
  std::optional<int> first_gpu = {};  // a GPU each: on every host those from this number on; without it processors
  slm::backend::CpuOptions cpu = {};  // of processors
};

/// On the first rank: a model of which every rank holds a share, in so many stages of layers. After set_draft_ranks():
/// every rank that holds targets. fast_reduce: see slm::Sharing. Throws what gpu_of_rank() throws.
slm::AnyModel load_on_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                            int stages, bool fast_reduce);
/// The same on the ranks that hold drafts, of which the first rank is none.
slm::AnyModel load_on_draft_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                                  bool fast_reduce);

}  // namespace cli
