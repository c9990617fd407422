// start_thread: starts a thread that is joined when its owner is destroyed. It replaces std::jthread, which some
// standard libraries lack.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// A thread, or none. Its destructor and assignments wait for its end. A class whose thread waits for a condition must
/// set a flag with the mutex of that condition and notify it before the thread is joined.
class JoinedThread {
 public:
  JoinedThread() = default;
  explicit JoinedThread(std::thread thread) : thread_(std::move(thread)) {}
  JoinedThread(JoinedThread&&) noexcept = default;
  JoinedThread& operator=(JoinedThread&& other) noexcept {
    if (this != &other) {
      join();
      thread_ = std::move(other.thread_);
    }
    return *this;
  }
  ~JoinedThread() { join(); }

  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

/// Throws backend.no-thread if the system has no more threads.
template <class Body>
JoinedThread start_thread(Body&& body) {
  try {
    return JoinedThread(std::thread(std::forward<Body>(body)));
  } catch (const std::system_error& error) {
    throw Error("backend.no-thread",
                text("expected another thread, but the system refused to start one: ", error.what()),
                "Ask for fewer threads, or raise the limit of the process");
  }
}

}}}
