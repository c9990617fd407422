// The launcher's environment of ranks, and the device of each rank.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "slm/ranks/alone.hpp"
#include "slm/ranks/devices.hpp"
#include "slm/ranks/launcher.hpp"
#include "slm/ranks/threads.hpp"
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

ranks::Launched launched_as(int rank, std::optional<int> local) { return {.rank = rank, .size = 8, .local = local}; }

std::string sentence_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("mpirun and srun set the rank of a process; without them it is a single rank") {
  const auto is = [](const Environment& environment, int rank, int size) {
    const ranks::Launched found = launched_in(environment);
    return found.rank == rank && found.size == size;
  };
  CHECK(is({}, 0, 1));
  CHECK(is({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, 3, 4));
  CHECK(is({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, 1, 2));
  // A batch script's own process, and processes of mpirun inside an allocation.
  CHECK(is({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1));
  CHECK(is({{"SLURM_PROCID", "0"},
            {"SLURM_STEP_NUM_TASKS", "1"},
            {"OMPI_COMM_WORLD_RANK", "5"},
            {"OMPI_COMM_WORLD_SIZE", "8"}},
           5, 8));
}

TEST_CASE("a contradictory environment is rejected") {
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

TEST_CASE("mpirun and srun set the rank of a process on its host") {
  const auto local = [](const Environment& environment) { return launched_in(environment).local; };
  CHECK(local({}) == std::nullopt);
  Environment environment{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_LOCALID", "0"}};
  CHECK(local(environment) == std::nullopt);  // of another launcher's ranks
  environment["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  CHECK(local(environment) == 1);
  CHECK(local({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "3"}}) == 3);
  for (const char* wrong : {"4", "-1", "", "one"}) {
    environment["OMPI_COMM_WORLD_LOCAL_RANK"] = wrong;
    CHECK(error_id([&] { launched_in(environment); }) == "ranks.launcher");
    CHECK(sentence_of([&] { launched_in(environment); }).find(text("OMPI_COMM_WORLD_LOCAL_RANK=", quote(wrong))) !=
          std::string::npos);
  }
}

TEST_CASE("devices are assigned to the ranks of a host, and a rank that sees one device uses it") {
  using ranks::device_of;
  for (const int local : {0, 1, 2, 3}) CHECK(device_of(launched_as(4 + local, local), 4) == local);
  for (const int local : {0, 1, 2}) CHECK(device_of(launched_as(local, local), 4, 1) == 1 + local);
  CHECK(device_of(launched_as(5, 3), 1) == 0);
  CHECK(device_of(launched_as(5, std::nullopt), 1) == 0);
}

TEST_CASE("more ranks on a host than devices are rejected, with the rank, the devices and the remedy") {
  using ranks::device_of;
  const auto refused = [](int local, int devices, int first) {
    return error_id([&] { device_of(launched_as(6, local), devices, first); }) == "ranks.devices";
  };
  CHECK(refused(2, 2, 0));
  CHECK(refused(1, 2, 1));
  CHECK(refused(0, 1, 1));
  const std::string sentence = sentence_of([] { device_of(launched_as(6, 2), 2); });
  for (const char* part : {"rank 6", "number 2 on its host", "device 2", "sees 2 devices", "--map-by ppr:N:node"})
    CHECK(sentence.find(part) != std::string::npos);
  CHECK(error_id([] { device_of(launched_as(1, std::nullopt), 2); }) == "ranks.launcher");
}

TEST_CASE("two ranks with one device are both named, on every rank") {
  const auto end_of = [](const std::vector<std::string>& names) {
    std::vector<std::string> said(names.size());
    ranks::run_threads(static_cast<int>(names.size()), [&](const ranks::Threads& ranks) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      said[rank] = sentence_of([&] { ranks::require_own_device(ranks, 10 + ranks.rank(), names[rank]); });
    });
    return said;
  };
  for (const std::string& sentence : end_of({"a 0", "a 1", "b 0"})) CHECK(sentence == "");
  for (const std::string& sentence : end_of({"a 0", "b 0", "a 1", "b 0"})) {
    CHECK(sentence.find("rank 11 and rank 13 share one device: b 0") != std::string::npos);
    CHECK(sentence.find("ranks.devices") != std::string::npos);
  }
  const std::string longest(1000, 'x');  // names end with the identifying part only if they are short
  CHECK(sentence_of([&] { ranks::require_own_device(ranks::Alone{}, 0, longest); }) == "");
}
