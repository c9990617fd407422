// WakeEvent: an event that wakes the engine's thread. Every notifier holds a shared_ptr to it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class WakeEvent {
 public:
  void notify() {
    {
      const std::lock_guard lock(mutex_);
      notified_ = true;
    }
    changed_.notify_all();
  }

  /// Waits for a notification since the last wait, at most 20 ms so that deadlines and tokens are polled.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return notified_; });
    notified_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
};

}}}
