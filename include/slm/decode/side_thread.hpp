// SideThread: a thread that runs a job while its owner does other work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "slm/core/float_environment.hpp"
#include "slm/core/start_thread.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Waits without spinning. One thread at a time may call run().
class SideThread {
 public:
  /// Throws backend.no-thread.
  SideThread() : thread_(start_thread([this] { work(); })) {}
  ~SideThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    news_.notify_all();
    thread_.join();
  }
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  /// Runs job() on the thread and beside() on the caller's. Returns when both have ended. Rethrows the job's exception,
  /// or else that of beside().
  template <class Job, class Beside>
  void run(Job&& job, Beside&& beside) {
    hand_over(const_cast<void*>(static_cast<const void*>(std::addressof(job))),
              [](void* object) { (*static_cast<std::remove_reference_t<Job>*>(object))(); });
    std::exception_ptr own;
    try {
      beside();
    } catch (...) {
      own = std::current_exception();
    }
    const std::exception_ptr other = wait();
    if (other) std::rethrow_exception(other);
    if (own) std::rethrow_exception(own);
  }

  /// Whether the job has ended, so that beside() can stop early.
  bool done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void hand_over(void* object, void (*call)(void*)) {
    {
      const std::lock_guard lock(mutex_);
      object_ = object;
      call_ = call;
      done_ = false;
    }
    news_.notify_all();
  }

  std::exception_ptr wait() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [this] { return done(); });
    return std::exchange(failure_, nullptr);
  }

  void work() {
    const FloatEnvironment environment;
    std::unique_lock lock(mutex_);
    for (;;) {
      news_.wait(lock, [this] { return call_ != nullptr || stopping_; });
      if (call_ == nullptr) return;
      const auto call = std::exchange(call_, nullptr);
      lock.unlock();
      std::exception_ptr failure;
      try {
        call(object_);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
      done_ = true;
      news_.notify_all();
    }
  }

  std::mutex mutex_;  // guards the members below
  std::condition_variable news_;
  void* object_ = nullptr;
  void (*call_)(void*) = nullptr;  // null: no job is pending
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> done_ = true;
  JoinedThread thread_;
};

}}}
