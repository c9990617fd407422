// Which device each rank computes on, where its host has several.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/ranks/communicator.hpp"
#include "slm/ranks/launcher.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// The number of this rank's device, of so many that its process sees: the one there is where a launcher lets each rank
/// see its own only; else they are dealt out to the ranks of the host in their order, from number `first` on.
/// Throws ranks.devices, ranks.launcher.
inline int device_of(const Launched& here, int devices, int first = 0) {
  if (devices == 1 && first == 0) return 0;  // whose own it is: require_own_device()
  if (!here.local) {
    throw Error("ranks.launcher",
                text("the environment does not say which of the ranks of its host rank ", here.rank, " is"),
                "Start the program by the mpirun of Open MPI or by srun, or let each rank see one device only");
  }
  const int device = first + *here.local;
  if (device < devices) return device;
  throw Error(
      "ranks.devices",
      text("rank ", here.rank, ", number ", *here.local, " on its host, was to have device ", device,
           " (both counted from 0), and sees ", devices, devices == 1 ? " device" : " devices"),
      "Start no more ranks on a host than it has devices: mpirun --map-by ppr:N:node, srun --ntasks-per-node=N");
}

/// All ranks at once. name: what no other device of any host is called; rank: what this rank is called. Throws
/// ranks.devices, on every rank, where two have the same.
template <Communicator C>
void require_own_device(const C& ranks, int rank, const std::string& name) {
  struct Entry {
    int rank = 0;
    std::array<char, 252> name = {};
  };
  Entry own{.rank = rank};
  std::copy_n(name.begin(), std::min(name.size(), own.name.size() - 1), own.name.begin());
  std::vector<Entry> all(static_cast<std::size_t>(ranks.size()));
  const std::vector<std::size_t> sizes(all.size(), sizeof own);
  ranks.all_gather(std::as_bytes(std::span(&own, 1)), sizes, std::as_writable_bytes(std::span(all)));
  for (auto later = all.begin(); later != all.end(); ++later) {
    const auto first = std::find_if(all.begin(), later, [&](const Entry& other) { return other.name == later->name; });
    if (first == later) continue;
    throw Error("ranks.devices",
                text("rank ", first->rank, " and rank ", later->rank, " have one device: ", later->name.data()),
                "Start no more ranks on a host than it has devices, and let each see all of them, or one of its own "
                "(srun --gpus-per-task=1)");
  }
}

}}}
