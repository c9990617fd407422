// The processor time of the calling thread.
#pragma once

#if defined(_WIN32)
// Declared here because <windows.h> defines macros with common names.
struct _FILETIME;
extern "C" {
__declspec(dllimport) void* __stdcall GetCurrentThread();
__declspec(dllimport) int __stdcall GetThreadTimes(void*, _FILETIME*, _FILETIME*, _FILETIME*, _FILETIME*);
}
#else
#include <time.h>
#endif

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Seconds that the calling thread has computed. Other programs on the machine do not matter.
inline double thread_seconds() {
#if defined(_WIN32)
  unsigned long long created = 0, ended = 0, system = 0, user = 0;  // in 100 ns
  const auto out = [](unsigned long long& time) { return reinterpret_cast<_FILETIME*>(&time); };
  GetThreadTimes(GetCurrentThread(), out(created), out(ended), out(system), out(user));
  return static_cast<double>(system + user) * 1e-7;
#else
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
#endif
}

}}}
