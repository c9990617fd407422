// Selects the device of each rank on hosts with several devices.
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

/// The index of this rank's device among `devices` visible ones. If the launcher exposes one device per rank, it is
/// that one. Otherwise the host's ranks get devices in order, starting at `first`. Throws ranks.devices,
/// ranks.launcher.
inline int device_of(const Launched& here, int devices, int first = 0) {
  if (devices == 1 && first == 0) return 0;  // require_own_device() checks that it is not shared
  if (!here.local) {
    throw Error("ranks.launcher", text("expected the environment to state the local number of rank ", here.rank, " is"),
                "Start the program with mpirun of Open MPI or srun, or expose one device to each rank");
  }
  const int device = first + *here.local;
  if (device < devices) return device;
  throw Error("ranks.devices",
              text("rank ", here.rank, ", number ", *here.local, " on its host, needs device ", device,
                   " (both counted from 0), but sees ", devices, devices == 1 ? " device" : " devices"),
              "Start at most one rank per device on each host: mpirun --map-by ppr:N:node, srun --ntasks-per-node=N");
}

/// Collective. name: globally unique name of the device. rank: for messages. Throws ranks.devices, on every rank, if
/// two ranks have the same device.
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
                text("rank ", first->rank, " and rank ", later->rank, " share one device: ", later->name.data()),
                "Start at most one rank per device on each host, and expose all devices to each rank, or one to each "
                "(srun --gpus-per-task=1)");
  }
}

}}}
