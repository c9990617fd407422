// A simulated NCCL without devices: its ranks are threads, its streams are the test's. It performs the calls, records
// them with every violation of NCCL's rules, and fails on request.
#pragma once

#include "nccl/nccl.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fake::nccl {

/// State of the thread of this rank.
inline thread_local int rank = 0;

struct Fault {
  std::string function;
  int rank = 0;
  ncclResult_t result = ncclSystemError;
  bool later = false;                 // the call is first in progress, then it has failed
  std::function<void()> before = {};  // the call fails immediately
  int spared = 0;                     // number of calls before it
};

struct Call {
  int rank = 0;
  std::string function;
  std::size_t bytes = 0;
  int root = 0;
  bool grouped = false;
  void* stream = nullptr;
};

struct Library {
  /// Work of a stream: returns whether it is complete, and is polled until then.
  std::function<void(void* stream, std::function<bool()> work)> enqueue;
  std::function<int()> device;  // the thread's current device
  std::vector<Fault> faults;
  std::map<int, int> versions;  // for ranks with another version
  bool hangs = false;           // work never completes
  bool peers_notice = true;     // other ranks do not see an abort, as over a network
  std::vector<Call> calls;      // except polls
  std::vector<std::string> breaches;
  int live = 0;         // communicators that are not freed yet
  int open_groups = 0;  // of all threads
};

/// Read and change it only while no rank is running.
Library& library();
void reset();

}  // namespace fake::nccl
