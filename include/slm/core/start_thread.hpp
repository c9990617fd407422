// start_thread: a thread of one's own, or an Error where the system has no more.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// As std::jthread's constructor. Throws backend.no-thread.
template <class Body>
std::jthread start_thread(Body&& body) {
  try {
    return std::jthread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw Error("backend.no-thread", text("the system refused to start another thread: ", error.what()),
                "Ask for fewer threads, or raise the limit of the process");
  }
}

}}}
