// A GPU vendor's runtime library without a GPU. It records calls, keeps memory on the host, and fails on request.
// Programs compiled for CUDA or HIP link it instead of the vendor's library, so that the code that calls the vendor
// runs without a device.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fake {

struct Launch {
  std::string kernel;  // mangled
  int device = 0;
  unsigned grid[3] = {}, block[3] = {};
  bool dependent = false;  // it may start before the previous kernel has ended
  bool together = false;   // all its blocks are resident at the same time
};

struct Library {
  int devices = 2;
  int bus = 1;              // PCI bus number of the first device
  int wave_width = 32;      // properties reported by the devices
  int compiled_width = 32;  // result of the runtime's probe kernel
  bool code_waits = false;
  bool cooperative = true;  // devices support cooperative launches
  int driver_version = 0;   // 0: the vendor's newest
  std::size_t total = std::size_t{24} << 30, free = std::size_t{20} << 30;
  std::map<std::string, int> failures;  // call without prefix -> status, until it is removed
  std::vector<std::string> calls;       // in order, without prefix; "Malloc@1": with device 1 current
  std::vector<Launch> launches;
  int current_device = 0;
  int live = 0;  // allocations, streams, events and graphs that are not freed yet
  std::map<const void*, std::string> kernels;
  std::function<void(const Launch&, void** arguments)> on_launch;
};

Library& library();

/// Resets everything except the kernels, which a program registers once.
void reset();

}  // namespace fake
