// Unlocked: unlocks a mutex while it lives.
#pragma once

#include <mutex>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { lock_.lock(); }

 private:
  std::unique_lock<std::mutex>& lock_;
};

}}}
