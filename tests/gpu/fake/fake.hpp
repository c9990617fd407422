// A GPU vendor's runtime library that has no GPU: it writes down what is called, keeps memory on the host, and fails
// when it is told to. Programs compiled for CUDA or HIP link it in place of the vendor's library, so that the code
// which talks to the vendor runs where there is no device.
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
  bool dependent = false;  // it may begin before the kernel before it has ended
  bool together = false;   // all its blocks are on the device at once
};

struct Library {
  int devices = 2;
  int bus = 1;              // PCI's number of the first of them
  int wave_width = 32;      // what the devices say of themselves
  int compiled_width = 32;  // what the "code" answers to the runtime's probe
  bool code_waits = false;
  bool cooperative = true;  // devices can start blocks together
  int driver_version = 0;   // 0: the vendor's newest
  std::size_t total = std::size_t{24} << 30, free = std::size_t{20} << 30;
  std::map<std::string, int> failures;  // call without prefix -> status, until it is erased
  std::vector<std::string> calls;       // in order, without prefix; "Malloc@1": with device 1 current
  std::vector<Launch> launches;
  int current_device = 0;
  int live = 0;  // allocations, streams, events, graphs not yet given back
  std::map<const void*, std::string> kernels;
  std::function<void(const Launch&, void** arguments)> on_launch;
};

Library& library();

/// Back to the first state, but for the kernels, which a program registers once.
void reset();

}  // namespace fake
