// start_thread: starts a std::jthread; throws Error if the system has no more threads.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Takes the arguments of std::jthread's constructor. Throws backend.no-thread.
template <class Body>
std::jthread start_thread(Body&& body) {
  try {
    return std::jthread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw Error("backend.no-thread",
                text("expected another thread, but the system refused to start one: ", error.what()),
                "Ask for fewer threads, or raise the limit of the process");
  }
}

}}}
