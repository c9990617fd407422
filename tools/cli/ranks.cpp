#include "tools/cli/ranks.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/launcher.hpp"
#include "tools/cli/rank_speed.hpp"

#if SLM_HAS_MPI
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <optional>

#include "slm/model/load_definition.hpp"
#include "slm/model/rank_group.hpp"
#include "slm/ranks/mpi.hpp"

template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&,
                                                  slm::backend::Split<slm::backend::Cpu, slm::ranks::Mpi>,
                                                  const slm::LoadOptions&);
#endif

namespace cli {

namespace {

slm::ranks::Launched here;

#if SLM_HAS_MPI
using Team = slm::ranks::Team<slm::ranks::Mpi>;
using Group = slm::RankGroup<slm::backend::Cpu, slm::ranks::Mpi>;

/// From first to last: each needs the one before.
std::unique_ptr<slm::ranks::MpiSession> session;
std::shared_ptr<Team> team;
std::optional<Group> group;

/// Seconds that a rank waits for another.
int patience() {
  const char* const said = std::getenv("SLM_RANK_TIMEOUT");
  if (said == nullptr) return 60;
  int seconds = 0;
  const char* const end = said + std::strlen(said);
  const auto [stopped, fault] = std::from_chars(said, end, seconds);
  if (fault == std::errc{} && stopped == end && seconds >= 1 && seconds <= 1 << 20) return seconds;
  throw slm::Error("ranks.launcher", slm::text("the environment says SLM_RANK_TIMEOUT=", slm::quote(said)),
                   "Give a number of seconds from 1 to 1048576");
}

/// What the first rank's own letters begin with, before there is a group.
enum class Wish { load, measure };

/// What all ranks must have in common before they understand each other.
constexpr std::uint64_t version = SLM_VERSION_MAJOR * 1000000 + SLM_VERSION_MINOR * 1000 + SLM_VERSION_PATCH;
#endif

}  // namespace

int rank() { return here.rank; }
int rank_count() { return here.size; }

void join_ranks(std::string_view command) {
  const slm::ranks::Launched launched = slm::ranks::launched([](const char* name) { return std::getenv(name); });
  if (launched.size == 1) return;
  constexpr std::array<std::string_view, 7> shared{"generate", "chat",       "serve",     "embed",
                                                   "logits",   "perplexity", "bench plan"};
  if (std::find(shared.begin(), shared.end(), command) == shared.end()) {
    throw slm::Error("ranks.command",
                     slm::text("slm ", slm::excerpt(command), " was started as ", launched.size, " ranks"),
                     "Start it alone; generate, chat, serve, embed, logits, perplexity and bench plan run on several");
  }
#if SLM_HAS_MPI
  const std::chrono::seconds most(patience());
  session = std::make_unique<slm::ranks::MpiSession>();
  here = launched;
  const slm::ranks::Mpi ranks(most);
  if (ranks.size() != launched.size || ranks.rank() != launched.rank) {
    throw slm::Error("ranks.launcher",
                     slm::text("the environment says rank ", launched.rank, " of ", launched.size, ", MPI says rank ",
                               ranks.rank(), " of ", ranks.size()),
                     "Start the program with the mpirun of its own MPI, or with srun --mpi=pmix");
  }
  slm::ranks::require_same(ranks, "version of slm", version);
  team = std::make_shared<Team>(ranks, most / 4, [](const slm::Error& why) {
    std::cerr << "slm: " << why.what() << '\n';
    slm::ranks::MpiSession::fail(1);
  });
#else
  throw slm::Error("ranks.no-mpi",
                   slm::text("this slm was started as one of ", launched.size, " ranks, and was built without MPI"),
                   "apt-get install libopenmpi-dev openmpi-bin, configure and build again");
#endif
}

int leave_ranks(int status) {
#if SLM_HAS_MPI
  if (team != nullptr && status == 0 && team->broken()) status = 1;
  if (session != nullptr && status != 0) slm::ranks::MpiSession::fail(status);
  group.reset();
  team.reset();
  session.reset();
#endif
  return status;
}

#if SLM_HAS_MPI
void help_first_rank() {
  // A launcher tells every rank to end; the first decides when that is.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  std::optional<slm::ranks::Letter> letter = team->next();
  while (letter && letter->take<Wish>() == Wish::measure) {
    rank_speed(team->ranks(), letter->take<int>());
    letter = team->next();
  }
  if (!letter) return;
  slm::backend::CpuOptions options{.threads = letter->take<int>(), .isa = letter->take<slm::backend::Isa>()};
  options.activations = letter->take<slm::backend::Int4Activations>();
  options.dense_activations = letter->take<slm::backend::DenseActivations>();
  options.copy_weights = letter->take<bool>();
  Group(slm::backend::Cpu(options), team).follow();
}

RankSpeed measure_ranks(int threads) {
  if (team == nullptr) return rank_speed(slm::ranks::Alone{}, threads);
  const auto speaks = team->lock();
  team->tell(slm::ranks::Letter{}.put(Wish::measure).put(threads));
  RankSpeed speed;
  team->together([&] { speed = rank_speed(team->ranks(), threads); });
  return speed;
}

slm::AnyModel load_on_ranks(const std::string& folder, const slm::backend::Cpu& device,
                            const slm::backend::CpuOptions& cpu, const slm::LoadOptions& options, int stages) {
  if (!group) {
    const auto speaks = team->lock();
    team->tell(slm::ranks::Letter{}
                   .put(Wish::load)
                   .put(cpu.threads)
                   .put(device.isa())
                   .put(cpu.activations)
                   .put(cpu.dense_activations)
                   .put(cpu.copy_weights));
    group.emplace(device, team);
  }
  return group->load(folder, options, {.stages = stages});
}
#else
void help_first_rank() {}

RankSpeed measure_ranks(int threads) { return rank_speed(slm::ranks::Alone{}, threads); }

slm::AnyModel load_on_ranks(const std::string& folder, const slm::backend::Cpu&, const slm::backend::CpuOptions&,
                            const slm::LoadOptions&, int) {
  throw slm::Error("ranks.no-mpi", slm::text("'", folder, "' was to be split over ranks"),
                   "apt-get install libopenmpi-dev openmpi-bin, configure and build again");
}
#endif

}  // namespace cli
