// Team: rank 0 sends commands that the other ranks execute.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/start_thread.hpp"
#include "slm/ranks/communicator.hpp"
#include "slm/ranks/message.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// On rank 0 any thread may send; the others wait in next(). Collective operations other than messages require the
/// lock. When idle, the team checks periodically that all ranks are alive, so that a missing rank is detected early.
template <Communicator C>
class Team {
 public:
  /// sign_of_life: interval of the check, less than the communicator's timeout. If a rank is missing, this rank fails.
  explicit Team(C ranks, std::chrono::milliseconds sign_of_life = std::chrono::seconds(5)) : ranks_(std::move(ranks)) {
    if (leads() && ranks_.size() > 1) watch_ = detail::start_thread([this, sign_of_life] { watch(sign_of_life); });
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// On rank 0: ends the others' next().
  ~Team() {
    {
      const std::lock_guard lock(watching_);
      stopping_ = true;
    }
    stopped_.notify_all();
    watch_.join();
    if (!leads() || failed_) return;
    try {
      send(end, {});
    } catch (...) {
      fail_with_exception(ranks_);
    }
  }

  const C& ranks() const { return ranks_; }
  bool leads() const { return ranks_.rank() == 0; }

  /// Locks commands and collective operations.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  /// Rank 0 only, with the lock.
  void send_all(const Message& message) {
    together([&] { send(message.bytes().size(), message.bytes()); });
  }

  /// Other ranks: returns the next command from rank 0; nothing at the end.
  std::optional<Message> next() {
    for (;;) {
      std::array<std::byte, first_bytes> first;
      ranks_.broadcast(first, 0);
      std::uint64_t size;
      std::memcpy(&size, first.data(), sizeof size);
      if (size == end) return std::nullopt;
      if (size == are_you_there) {
        ranks_.barrier();
        continue;
      }
      std::vector<std::byte> bytes(static_cast<std::size_t>(size));
      const std::size_t in_first = std::min(bytes.size(), first_bytes - sizeof size);
      std::copy_n(first.begin() + sizeof size, in_first, bytes.begin());
      if (in_first < bytes.size()) ranks_.broadcast(std::span(bytes).subspan(in_first), 0);
      return Message(std::move(bytes));
    }
  }

  /// Keeps an object until the other ranks know of the end, for objects that ranks must destroy together, such as
  /// communicators.
  void keep(std::shared_ptr<const void> thing) { kept_.push_back(std::move(thing)); }

  /// Runs a collective operation. If it throws, the ranks' states may differ: the others receive a failure instead of
  /// an end.
  template <class Body>
  void together(Body&& body) {
    try {
      body();
    } catch (const std::exception& error) {
      note_failure(error.what());
      throw;
    } catch (...) {
      note_failure("an exception of an unknown type");
      throw;
    }
  }
  /// Records that a collective operation was interrupted.
  void give_up() noexcept { note_failure("a step was interrupted"); }
  /// The failure after which no collective operation is possible; empty if there is none.
  std::string failure() {
    const auto speaks = lock();
    return failed_ && failure_.empty() ? "a failure whose message did not fit into memory" : failure_;
  }

 private:
  static constexpr std::size_t first_bytes = 4096;  // of a message: one transfer suffices for nearly every step
  static constexpr std::uint64_t end = ~std::uint64_t{0}, are_you_there = end - 1;  // special values of the size

  void send(std::uint64_t size, std::span<const std::byte> bytes) {
    told_ = std::chrono::steady_clock::now();
    std::array<std::byte, first_bytes> first{};
    const std::size_t in_first = std::min(bytes.size(), first_bytes - sizeof size);
    std::memcpy(first.data(), &size, sizeof size);
    std::copy_n(bytes.begin(), in_first, first.begin() + sizeof size);
    ranks_.broadcast(first, 0);
    if (in_first == bytes.size()) return;
    std::vector<std::byte> rest(bytes.begin() + static_cast<std::ptrdiff_t>(in_first), bytes.end());
    ranks_.broadcast(rest, 0);
  }

  void note_failure(const char* why) noexcept {
    failed_ = true;
    try {
      failure_ = why;
    } catch (const std::bad_alloc&) {
      failure_.clear();
    }
  }

  void watch(std::chrono::milliseconds sign_of_life) {
    std::unique_lock waiting(watching_);
    while (!stopped_.wait_for(waiting, sign_of_life / 2, [this] { return stopping_; })) {
      const std::unique_lock speaks(mutex_, std::try_to_lock);  // the holder of the lock detects a failure itself
      if (!speaks || failed_ || std::chrono::steady_clock::now() - told_ < sign_of_life / 2) continue;
      try {
        together([&] {
          send(are_you_there, {});
          ranks_.barrier();
        });
      } catch (...) {
        return fail_with_exception(ranks_);
      }
    }
  }

  C ranks_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::mutex mutex_;  // guards the members below
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  bool failed_ = false;
  std::string failure_;  // may be empty after a failure, for lack of memory
  std::mutex watching_;  // guards the next member
  bool stopping_ = false;
  std::condition_variable stopped_;
  detail::JoinedThread watch_;
};

}}}
