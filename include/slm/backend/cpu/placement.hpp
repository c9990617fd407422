// Placement: keeps the workers of a thread pool off the processor of the thread that gives them work.
#pragma once

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include <thread>
#include <vector>

namespace slm { inline namespace v0_1 { namespace backend {

/// Linux wakes a thread on the processor of whoever wakes it when the others seem busy, as idle processors of a virtual
/// machine do: worker and caller then take turns on one of them for 10 ms and more while another has nothing to do.
/// Elsewhere, and where a process may not choose, this does nothing.
class Placement {
 public:
#if defined(__linux__)
  /// The processors that the calling thread may use.
  Placement() {
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
  }

  /// Called before each loop, by the thread that shares it out: a few nanoseconds where it has not moved.
  void keep_off_caller(std::vector<std::thread>& workers) {
    const int caller = sched_getcpu();
    if (caller == caller_) return;
    caller_ = caller;
    cpu_set_t others = allowed_;
    if (caller >= 0 && caller < CPU_SETSIZE) CPU_CLR(caller, &others);
    if (CPU_COUNT(&others) < static_cast<int>(workers.size())) return;
    for (std::thread& worker : workers) pthread_setaffinity_np(worker.native_handle(), sizeof others, &others);
  }

 private:
  cpu_set_t allowed_;
  int caller_ = -1;
#else
  void keep_off_caller(std::vector<std::thread>&) {}
#endif
};

}}}
