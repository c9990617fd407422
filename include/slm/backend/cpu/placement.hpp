// Placement: keeps the workers of a thread pool off the caller's processor.
#pragma once

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include <thread>
#include <vector>

namespace slm { inline namespace v0_1 { namespace backend {

/// Linux wakes a thread on the waker's processor if other processors seem busy, as idle ones of a virtual machine do.
/// Worker and caller then alternate on one processor for 10 ms and more while another is idle. On other systems, or
/// without permission, this does nothing.
class Placement {
 public:
#if defined(__linux__)
  /// Reads the calling thread's affinity mask.
  Placement() {
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
  }

  /// Called by the caller before each loop; takes a few nanoseconds unless the caller's processor changed.
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
