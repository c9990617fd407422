#include "tools/cli/ranks.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/launcher.hpp"
#include "tools/cli/gpu.hpp"
#include "tools/cli/rank_speed.hpp"

#if SLM_HAS_MPI
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <optional>

#include "slm/model/load_definition.hpp"
#include "tools/cli/rank_models.hpp"

template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&,
                                                  slm::backend::Split<slm::backend::Cpu, slm::ranks::Mpi>,
                                                  const slm::LoadOptions&);
#endif

namespace cli {

namespace {

slm::ranks::Launched here;

#if SLM_HAS_MPI
using Team = slm::ranks::Team<slm::ranks::Mpi>;

/// The session lives longest. The team exists until a model is loaded; that model's group has its own team.
std::unique_ptr<slm::ranks::MpiSession> session;
std::shared_ptr<Team> team;
std::unique_ptr<RankModels> models;
/// On rank 0, if drafts have their own ranks.
std::shared_ptr<Team> draft_team;
std::unique_ptr<RankModels> draft_models;

/// First value of rank 0's messages, before a group exists.
enum class Command { load, measure, divide };

/// Collective: the first ranks, with targets, form one group; rank 0 and the last `count` ranks another.
struct Divided {
  slm::ranks::Mpi targets, drafts;

  Divided(const slm::ranks::Mpi& all, int count)
      : targets(all.split(holds_drafts(all, count) ? 1 : 0, all.rank())),
        drafts(all.split(holds_drafts(all, count) || all.rank() == 0 ? 1 : 0, all.rank())) {}

  static bool holds_drafts(const slm::ranks::Mpi& all, int count) { return all.rank() >= all.size() - count; }
};

/// Collective over `ranks`.
std::unique_ptr<RankModels> models_on(const slm::ranks::Mpi& ranks, const RankDevice& device) {
  if (device.first_gpu) return models_on_gpus(ranks, here, *device.first_gpu);
  return std::make_unique<RankModelsOn<slm::backend::Cpu, slm::ranks::Mpi>>(slm::backend::Cpu(device.cpu), ranks);
}

/// On rank 0. own_threads: threads of rank 0's own processor. From then on the returned object performs the team's
/// collective operations.
std::unique_ptr<RankModels> new_models(std::shared_ptr<Team>& of, RankDevice device, int own_threads) {
  if (device.first_gpu) gpu_of_rank(here, *device.first_gpu);  // before the others start
  slm::backend::CpuOptions& cpu = device.cpu;
  cpu.isa = slm::backend::resolve(cpu.isa);
  {
    const auto speaks = of->lock();
    of->send_all(slm::ranks::Message{}
                     .put(Command::load)
                     .put(device.first_gpu.value_or(-1))
                     .put(cpu.threads)
                     .put(cpu.isa)
                     .put(cpu.activations)
                     .put(cpu.dense_activations)
                     .put(cpu.copy_weights));
  }
  const slm::ranks::Mpi ranks = of->ranks();
  of.reset();
  cpu.threads = own_threads;
  return models_on(ranks, device);
}

/// MPI itself could wait forever for a rank that does not end.
void end_together() {
  const std::chrono::seconds most = patience();
  const slm::ranks::Mpi all(most);
  try {
    all.barrier();
  } catch (const slm::Error& why) {
    all.fail(why.what());
  }
  alarm(static_cast<unsigned>(most.count()));  // for a rank that stops at this moment
}

/// Must be equal on all ranks before they exchange messages.
constexpr std::uint64_t version = SLM_VERSION_MAJOR * 1000000 + SLM_VERSION_MINOR * 1000 + SLM_VERSION_PATCH;
#endif

slm::Error too_many_draft_ranks(int count) {
  return slm::Error(
      "ranks.draft",
      slm::text(count, " of ", here.size, " ranks cannot hold the draft: expected fewer draft ranks than ranks"),
      "Start slm with mpirun or srun and more ranks; the first ones hold the target");
}

}  // namespace

int rank() { return here.rank; }
int rank_count() { return here.size; }

#if SLM_HAS_MPI
std::chrono::seconds patience() {
  const char* const said = std::getenv("SLM_RANK_TIMEOUT");
  if (said == nullptr) return std::chrono::seconds(60);
  int seconds = 0;
  const char* const end = said + std::strlen(said);
  const auto [stopped, fault] = std::from_chars(said, end, seconds);
  if (fault == std::errc{} && stopped == end && seconds >= 1 && seconds <= 1 << 20)
    return std::chrono::seconds(seconds);
  throw slm::Error("ranks.launcher",
                   slm::text("expected a number of seconds in SLM_RANK_TIMEOUT, found ", slm::quote(said)),
                   "Use a number of seconds from 1 to 1048576");
}
#endif

void join_ranks(std::string_view command) {
  const slm::ranks::Launched launched = slm::ranks::launched([](const char* name) { return std::getenv(name); });
  if (launched.size == 1) return;
  constexpr std::array<std::string_view, 7> shared{"generate", "chat",       "serve",     "embed",
                                                   "logits",   "perplexity", "bench plan"};
  if (std::find(shared.begin(), shared.end(), command) == shared.end()) {
    throw slm::Error("ranks.command",
                     slm::text("slm ", slm::excerpt(command), " does not support several ranks, but was started as ",
                               launched.size, " ranks"),
                     "Start it without a launcher; generate, chat, serve, embed, logits, perplexity and bench plan "
                     "support several ranks");
  }
#if SLM_HAS_MPI
  const std::chrono::seconds most = patience();
  session =
      std::make_unique<slm::ranks::MpiSession>([](const std::string& why) { std::cerr << "slm: " << why << '\n'; });
  here = launched;
  const slm::ranks::Mpi ranks(most);
  if (ranks.size() != launched.size || ranks.rank() != launched.rank) {
    throw slm::Error("ranks.launcher",
                     slm::text("the environment states rank ", launched.rank, " of ", launched.size,
                               ", but MPI states rank ", ranks.rank(), " of ", ranks.size()),
                     "Start the program with the mpirun of the same MPI, or with srun --mpi=pmix");
  }
  slm::ranks::require_same(ranks, "version of slm", version);
  team = team_of(ranks);
#else
  throw slm::Error("ranks.no-mpi",
                   slm::text("this slm was started as one of ", launched.size, " ranks, but was built without MPI"),
                   "Install MPI (apt-get install libopenmpi-dev openmpi-bin), configure and build again");
#endif
}

int leave_ranks(int status) {
#if SLM_HAS_MPI
  const auto failure_of = [](const auto& one) { return one == nullptr ? std::string() : one->failure(); };
  if (status == 0) {
    for (const std::string& why :
         {failure_of(team), failure_of(draft_team), failure_of(models), failure_of(draft_models)}) {
      if (!why.empty()) slm::ranks::MpiSession::fail(1, why);
    }
  }
  if (session != nullptr && status != 0) slm::ranks::MpiSession::fail(status);
  draft_models.reset();
  draft_team.reset();
  models.reset();
  team.reset();
  if (session != nullptr) end_together();
  session.reset();
#endif
  return status;
}

#if SLM_HAS_MPI
void help_first_rank() {
  // A launcher signals every rank; rank 0 decides when to end.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  std::optional<slm::ranks::Message> message = team->next();
  for (; message; message = team->next()) {
    const auto command = message->take<Command>();
    if (command == Command::load) break;
    const int number = message->take<int>();
    if (command == Command::measure) {
      rank_speed(team->ranks(), number);
      continue;
    }
    const Divided divided(team->ranks(), number);
    team->next();  // end of this team
    team = team_of(Divided::holds_drafts(team->ranks(), number) ? divided.drafts : divided.targets);
  }
  if (!message) return;
  RankDevice device;
  const int first_gpu = message->take<int>();
  if (first_gpu >= 0) device.first_gpu = first_gpu;
  device.cpu.threads = message->take<int>();
  device.cpu.isa = message->take<slm::backend::Isa>();
  device.cpu.activations = message->take<slm::backend::Int4Activations>();
  device.cpu.dense_activations = message->take<slm::backend::DenseActivations>();
  device.cpu.copy_weights = message->take<bool>();
  team->next();  // end of this team
  const slm::ranks::Mpi ranks = team->ranks();
  team.reset();
  models_on(ranks, device)->follow();
}

RankSpeed measure_ranks(int threads) {
  if (team == nullptr) return rank_speed(slm::ranks::Alone{}, threads);
  const auto speaks = team->lock();
  team->send_all(slm::ranks::Message{}.put(Command::measure).put(threads));
  RankSpeed speed;
  team->together([&] { speed = rank_speed(team->ranks(), threads); });
  return speed;
}

void set_draft_ranks(int count) {
  if (count >= here.size) throw too_many_draft_ranks(count);
  std::optional<Divided> divided;
  {
    const auto speaks = team->lock();
    team->send_all(slm::ranks::Message{}.put(Command::divide).put(count));
    team->together([&] { divided.emplace(team->ranks(), count); });
  }
  team.reset();
  team = team_of(divided->targets);
  draft_team = team_of(divided->drafts.sleeping());
}

slm::AnyModel load_on_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                            int stages, bool fast_reduce) {
  if (models == nullptr && team->ranks().size() == 1 && stages == 1 && !fast_reduce) {
    if (device.first_gpu) return load_on_gpu(folder, gpu_of_rank(here, *device.first_gpu), options);
    return slm::load(folder, slm::backend::Cpu(device.cpu), options);
  }
  if (models == nullptr) models = new_models(team, device, device.cpu.threads);
  return models->load(folder, options, {.stages = stages, .fast_reduce = fast_reduce});
}

slm::AnyModel load_on_draft_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                                  bool fast_reduce) {
  if (draft_models == nullptr) draft_models = new_models(draft_team, device, 1);  // rank 0 holds no part of the draft
  return draft_models->load(folder, options, {.first_only_controls = true, .fast_reduce = fast_reduce});
}
#else
void help_first_rank() {}

RankSpeed measure_ranks(int threads) { return rank_speed(slm::ranks::Alone{}, threads); }

slm::AnyModel load_on_ranks(const std::string& folder, const RankDevice&, const slm::LoadOptions&, int, bool) {
  throw slm::Error("ranks.no-mpi",
                   slm::text("'", folder, "' cannot be distributed over ranks: this slm was built without MPI"),
                   "Install MPI (apt-get install libopenmpi-dev openmpi-bin), configure and build again");
}

void set_draft_ranks(int count) { throw too_many_draft_ranks(count); }

slm::AnyModel load_on_draft_ranks(const std::string& folder, const RankDevice& device, const slm::LoadOptions& options,
                                  bool fast_reduce) {
  return load_on_ranks(folder, device, options, 1, fast_reduce);
}
#endif

}  // namespace cli
