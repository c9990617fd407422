// Processors of the operating system: the affinity mask of threads, and features that the system grants or reports.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "slm/core/macros.hpp"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <bit>
// Declared here because <windows.h> defines macros with common names.
extern "C" {
__declspec(dllimport) void* __stdcall GetCurrentProcess();
__declspec(dllimport) int __stdcall GetProcessAffinityMask(void*, unsigned long long*, unsigned long long*);
}
#endif

namespace slm { inline namespace v0_1 { namespace detail {

/// Number of processors in the affinity mask; 0: unknown.
inline int allowed_processors() {
#if defined(__linux__)
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
#elif defined(_WIN32)
  unsigned long long process = 0, system = 0;
  return GetProcessAffinityMask(GetCurrentProcess(), &process, &system) != 0 ? std::popcount(process) : 0;
#else
  return 0;
#endif
}

/// Requests the registers of AMX, which Linux grants to processes that request them. Returns true if they may be used.
inline bool request_amx_registers() {
#if defined(__linux__) && SLM_ARCH_X86_64
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

/// Features of an AArch64 processor that the system reports.
struct NeonFeatures {
  bool dot = false;   // dot products of bytes
  bool i8mm = false;  // products of byte matrices
};
inline NeonFeatures neon_features() {
  NeonFeatures found;
#if defined(__linux__) && SLM_ARCH_AARCH64
  found.dot = (::getauxval(AT_HWCAP) & (1ul << 20)) != 0;
  found.i8mm = (::getauxval(AT_HWCAP2) & (1ul << 13)) != 0;
#elif defined(__APPLE__) && SLM_ARCH_AARCH64
  const auto has = [](const char* name) {
    int value = 0;
    std::size_t size = sizeof value;
    return ::sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  found.dot = has("hw.optional.arm.FEAT_DotProd");
  found.i8mm = has("hw.optional.arm.FEAT_I8MM");
#endif
  return found;
}

/// Whether control groups may limit this process.
inline constexpr bool has_control_groups =
#if defined(__linux__)
    true;
#else
    false;
#endif

/// Keeps workers off the processor of their caller. Linux wakes a thread on the waker's processor if other processors
/// seem busy, as idle ones of a virtual machine do. Worker and caller then alternate on one processor for 10 ms and
/// more while another is idle. On other systems, or without permission, this does nothing.
class Affinity {
 public:
#if defined(__linux__)
  /// Reads the calling thread's affinity mask.
  Affinity() {
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
  }

  /// Takes a few nanoseconds unless the caller's processor changed.
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
