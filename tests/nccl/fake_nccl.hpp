// A NCCL without devices: its ranks are threads, its streams are the test's. It does what the calls are for, writes
// them down with every breach of NCCL's rules, and fails when it is told to.
#pragma once

#include "nccl/nccl.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fake::nccl {

/// Of the thread, which is this rank of all.
inline thread_local int rank = 0;

struct Fault {
  std::string function;
  int rank = 0;
  ncclResult_t result = ncclSystemError;
  bool later = false;                 // the call is in progress first, and then has failed
  std::function<void()> before = {};  // keeps the call from being made
  int spared = 0;                     // calls before it
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
  /// Work of a stream: returns whether it is done, and is asked again until it is.
  std::function<void(void* stream, std::function<bool()> work)> enqueue;
  std::function<int()> device;  // the thread's current one
  std::vector<Fault> faults;
  std::map<int, int> versions;  // of ranks that have another
  bool hangs = false;           // no work is ever done
  bool peers_notice = true;     // that a rank has aborted, as over a network; else they wait for it
  std::vector<Call> calls;      // but for questions
  std::vector<std::string> breaches;
  int live = 0;         // communicators not yet given back
  int open_groups = 0;  // of all threads
};

/// To be looked at and changed only while no rank is at work.
Library& library();
void reset();

}  // namespace fake::nccl
