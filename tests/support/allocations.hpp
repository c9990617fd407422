// Counts the allocations of a program and lets some fail. allocations.cpp replaces operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "slm/core/error.hpp"

namespace slm::testing {

inline std::atomic<std::int64_t> allocations = 0;  // of all threads

/// The failing allocations: of the current thread, of all other threads, or of all.
enum class Failing { here, elsewhere, everywhere };

/// Selects failing allocations. Only one object may be active.
class Failure {
 public:
  /// The n-th allocation of the action, from 1 on; lasting: and all following ones.
  Failure(long n, bool lasting, Failing whose) : n_(n) {
    lasting_ = lasting;
    whose_ = whose;
  }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  /// Calls action() while allocations fail. Returns whether it succeeded; false if it threw Error or std::bad_alloc.
  template <class Action>
  bool spares(Action&& action) {
    const Armed armed(n_, reached_);
    try {
      action();
    } catch (const std::bad_alloc&) {
      return false;
    } catch (const Error&) {
      return false;
    }
    return true;
  }
  /// Whether the last action reached the n-th allocation.
  bool reached() const { return reached_; }

  /// Whether the current allocation fails.
  static bool is_now() {
    if (!armed_.load(std::memory_order_acquire)) return false;
    if (whose_ != Failing::everywhere && (whose_ == Failing::here) != asks_) return false;
    const long left = left_.fetch_sub(1, std::memory_order_relaxed);
    return left == 1 || (left < 1 && lasting_);
  }

 private:
  struct Armed {
    Armed(long n, bool& was_reached) : reached(was_reached) {
      left_ = n;
      asks_ = true;
      armed_.store(true, std::memory_order_release);
    }
    ~Armed() {
      armed_ = false;
      asks_ = false;
      reached = left_ < 1;
    }
    bool& reached;
  };

  inline static std::atomic<bool> armed_ = false, lasting_ = false;
  inline static std::atomic<Failing> whose_ = Failing::here;
  inline static std::atomic<long> left_ = 0;
  inline static thread_local bool asks_ = false;

  long n_;
  bool reached_ = false;
};

/// Calls test(failure) for the first allocation of the test's action, the second and so on, until the action makes
/// fewer: once with only that allocation failing, once with all following ones failing too. Returns their number.
template <class Test>
long fail_each_allocation(Test&& test, Failing whose = Failing::here, long stride = 1) {
  long n = 1;
  for (const bool lasting : {true, false}) {
    for (n = 1;; n += stride) {
      Failure failure(n, lasting, whose);
      test(failure);
      if (!failure.reached()) break;
    }
  }
  return n - 1;
}

inline void* allocate(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (Failure::is_now()) throw std::bad_alloc{};
  const std::size_t whole = (size > 0 ? size : 1) + alignment - 1;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(size > 0 ? size : 1)
                           : std::aligned_alloc(alignment, whole / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc{};
  return memory;
}

}  // namespace slm::testing
