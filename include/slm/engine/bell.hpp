// Bell: wakes the engine's thread. Whoever may ring it keeps it alive.
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

  /// Until it is rung, or was since the last time; not for long, as there are deadlines to be looked after, and
  /// readers.
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
