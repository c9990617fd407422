// Bell: an event that wakes the engine's thread. Every notifier holds a shared_ptr to it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace slm { inline namespace v0_1 { namespace detail {

class Bell {
 public:
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    changed_.notify_all();
  }

  /// Waits for a ring since the last wait, at most 20 ms so that deadlines are polled.
  void wait(const std::stop_token& stop = {}) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, std::chrono::milliseconds(20), [&] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool rung_ = false;
};

}}}
