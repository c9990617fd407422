// wait_while, wake_waiters: threads that wait until an atomic object has another value.
#pragma once

#include <atomic>

#if defined(_WIN32)
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#endif

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

#if defined(_WIN32)
// Where the system has no futex, std::atomic::wait of GCC 12 compares the value before it locks its mutex, and misses a
// notification in between.

struct Waiters {
  std::mutex mutex;
  std::condition_variable changed;
};

/// Never destroyed, since threads may wait until the process ends.
inline Waiters& waiters_at(const void* address) {
  static auto& all = *new std::array<Waiters, 16>;
  return all[reinterpret_cast<std::uintptr_t>(address) / 64 % all.size()];
}
#endif

/// Returns when `object` has another value than `value`, read with memory_order_acquire.
template <class T>
void wait_while(const std::atomic<T>& object, T value) {
#if defined(_WIN32)
  Waiters& waiters = waiters_at(&object);
  std::unique_lock lock(waiters.mutex);
  waiters.changed.wait(lock, [&] { return object.load(std::memory_order_acquire) != value; });
#else
  object.wait(value, std::memory_order_acquire);
#endif
}

/// Wakes all threads that wait for `object`. Its value must have been changed before.
template <class T>
void wake_waiters(std::atomic<T>& object) {
#if defined(_WIN32)
  Waiters& waiters = waiters_at(&object);
  { const std::lock_guard lock(waiters.mutex); }  // no thread is between its comparison and its wait
  waiters.changed.notify_all();
#else
  object.notify_all();
#endif
}

}}}
