// ThreadPool: threads for short parallel loops, with a start and end cost of about a microsecond, or the threads of an
// application's Executor.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/cpu/isa.hpp"
#include "slm/core/error.hpp"
#include "slm/core/executor.hpp"
#include "slm/core/float_environment.hpp"
#include "slm/core/os/atomic_wait.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/core/os/processors.hpp"
#include "slm/core/usable_cores.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// run() gives every thread a share of adjacent tasks, which it claims one by one in order. One thread thus reads
/// adjacent memory, and prefetches its own next data. A thread that finishes its share claims tasks of other shares, so
/// a preempted thread delays no one else. Calls of run() by several threads alternate. Not OpenMP: an empty loop costs
/// 0.3 µs instead of 1.0 µs (libgomp, 2 threads), there is no barrier for the slowest thread, and headers need no
/// compiler flag.
class ThreadPool {
 public:
  /// threads: number of threads per loop including the caller, 1..1024; 0: one per usable core, or as many as the
  /// system starts. Throws backend.invalid-threads; and backend.no-thread if an explicit number cannot be started.
  explicit ThreadPool(int threads) {
    const int wanted = threads == 0 ? std::min(usable_cores(), most_threads) : checked(threads);
    try {
      workers_.reserve(static_cast<std::size_t>(wanted - 1));
      while (static_cast<int>(workers_.size()) < wanted - 1) {
        const int worker = static_cast<int>(workers_.size()) + 1;
        workers_.emplace_back([this, worker] { serve(worker); });
      }
    } catch (const std::system_error& error) {
      if (threads != 0) {
        const std::size_t started = workers_.size();
        stop();
        throw Error("backend.no-thread", text("started only ", started, " of ", wanted - 1, " threads: ", error.what()),
                    "Ask for fewer threads, or raise the limit of the process");
      }
    } catch (...) {
      stop();
      throw;
    }
    try {
      shares_ = std::vector<Share>(workers_.size() + 1);
    } catch (...) {
      stop();
      throw;
    }
    begin();
  }

  /// Starts no thread. threads: number of threads per loop, at most 1024; 0: executor->threads(). Throws
  /// backend.invalid-threads.
  ThreadPool(int threads, std::shared_ptr<Executor> executor)
      : shares_(static_cast<std::size_t>(checked(threads == 0 ? executor->threads() : threads))),
        executor_(std::move(executor)) {}

  /// A pool with one thread per usable core, which all callers share; it ends with its last handle.
  static std::shared_ptr<ThreadPool> common() {
    static std::mutex mutex;
    static std::weak_ptr<ThreadPool> current;
    const std::lock_guard lock(mutex);
    std::shared_ptr<ThreadPool> pool = current.lock();
    if (!pool) current = pool = std::make_shared<ThreadPool>(0);
    return pool;
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { stop(); }

  int threads() const noexcept { return static_cast<int>(shares_.size()); }

  /// Whether the calling thread is inside the run() of this pool's executor, so that another loop would not begin.
  bool is_waiting_here() const noexcept { return Waiting::has(this); }

  /// Calls task(index, worker) once for each index in [0, count), on any thread; worker < threads() identifies the
  /// thread. Returns when all tasks have ended, then rethrows the first exception. shared: false runs all tasks on the
  /// caller, and the first exception ends the loop. Throws backend.executor if the executor fails; some tasks have then
  /// run.
  template <class Task>
  void run(std::uint32_t count, Task&& task, bool shared = true) {
    using Plain = std::remove_reference_t<Task>;
    const Call call = [](void* context, std::uint32_t index, int worker) {
      (*static_cast<Plain*>(context))(index, worker);
    };
    run_calls(count, call, const_cast<void*>(static_cast<const void*>(&task)), shared);
  }

 private:
  using Call = void (*)(void* context, std::uint32_t index, int worker);

  /// run() with a type-erased task.
  void run_calls(std::uint32_t count, Call call, void* context, bool shared) {
    if (!shared || shares_.size() == 1 || count <= 1) {
      for (std::uint32_t index = 0; index < count; ++index) call(context, index, 0);
      return;
    }
    const std::lock_guard turn(turn_);
    affinity_.keep_off_caller(workers_);
    call_ = call;
    context_ = context;
    count_ = count;
    unfinished_.store(count, std::memory_order_relaxed);
    ++round_;
    for (std::size_t share = shares_.size(); share-- > 0;) {  // the caller's share is last, as the caller claims last
      shares_[share].unclaimed.store(round_ << 32 | (begin_of(share + 1) - begin_of(share)), std::memory_order_seq_cst);
    }
    if (executor_ != nullptr) {
      run_on_executor();
    } else {
      if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        wakeups_.fetch_add(1, std::memory_order_release);
        detail::wake_waiters(wakeups_);
      }
      claim_all(0);
      for (int spins = 0; unfinished_.load(std::memory_order_acquire) != 0; spins += spins < spins_before_yield) {
        relax(spins);
      }
    }
    if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
  }

  /// Part i of the executor is worker i. Parts claim tasks like workers, so each of them may find none.
  void run_on_executor() {
    const int parts = static_cast<int>(std::min<std::uint64_t>(shares_.size(), count_));
    ended_.store(0, std::memory_order_relaxed);
    std::exception_ptr thrown;
    {
      const Waiting waiting(this);
      try {
        executor_->run(parts, Executor::Part(run_part, this));
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    const int ended = ended_.load(std::memory_order_acquire);
    if (!thrown && ended == parts) return;
    std::uint32_t left = 0;  // no part begins another task, and those that run end before the task's data does
    for (Share& share : shares_) {
      left += static_cast<std::uint32_t>(share.unclaimed.exchange(0, std::memory_order_acq_rel));
    }
    while (unfinished_.load(std::memory_order_acquire) != left) std::this_thread::yield();
    fault_ = nullptr;
    throw Error("backend.executor",
                text("expected the executor to run ", parts, " parts once each, found ",
                     thrown ? "the exception " + text_of(thrown) : text("that run() returned after ", ended)),
                "Call each part once in Executor::run(), and return after all have ended");
  }

  static std::string text_of(const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "of an unknown type";
    }
  }

  static void run_part(void* loop, int index) noexcept {
    ThreadPool& pool = *static_cast<ThreadPool*>(loop);
    if (index < 0 || index >= pool.threads()) return;
    const detail::FloatEnvironment environment;
    const detail::BusErrorsTaken taken;
    pool.claim_all(index);
    pool.ended_.fetch_add(1, std::memory_order_release);
  }

  /// The pools whose executors the calling thread waits for, the innermost first.
  class Waiting {
   public:
    explicit Waiting(const ThreadPool* pool) : pool_(pool), outer_(std::exchange(innermost(), this)) {}
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { innermost() = outer_; }

    static bool has(const ThreadPool* pool) noexcept {
      const Waiting* waiting = innermost();
      while (waiting != nullptr && waiting->pool_ != pool) waiting = waiting->outer_;
      return waiting != nullptr;
    }

   private:
    static const Waiting*& innermost() noexcept {
      static thread_local const Waiting* waiting = nullptr;
      return waiting;
    }

    const ThreadPool* pool_;
    const Waiting* outer_;
  };

  /// Calls one task and stores its exception. An uncaught exception in a worker would end the program. In the caller,
  /// it would destroy the task while workers use it.
  void attempt(std::uint32_t index, int worker) {
    try {
      call_(context_, index, worker);
    } catch (...) {
      const std::lock_guard lock(fault_mutex_);
      if (!fault_) fault_ = std::current_exception();
    }
  }

  // A pause takes 10 to 50 ns. Workers spin for about 30 µs, which bridges the gap between two loops of a step, then
  // yield their core. After about a millisecond without work they sleep until the next loop wakes them.
  static constexpr int spins_before_yield = 2000;
  static constexpr int spins_before_sleep = 4000;

  /// Data that a worker reads at the start of a loop, in one cache line: moving a line between cores costs 100 to 200
  /// ns.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> unclaimed{0};  // round << 32 | number of unclaimed tasks
  };

  static constexpr int most_threads = 1024;

  static int checked(int threads) {
    if (threads < 1 || threads > most_threads) {
      throw Error("backend.invalid-threads", text("expected 1 to ", most_threads, " threads, found ", threads),
                  "Pass the number of cores to use, or 0 for all of them");
    }
    return threads;
  }

  /// The first task of a share.
  std::uint64_t begin_of(std::size_t share) const { return std::uint64_t{count_} * share / shares_.size(); }

  static void relax(int spins) {
    if (spins >= spins_before_yield) {
      std::this_thread::yield();
    } else {
      spin_hint();
    }
  }

  /// The word has the round and the number of unclaimed tasks. A claim succeeds only if the word is unchanged, so a
  /// claim from an earlier round fails. The loop's fields are read only after a successful claim.
  bool claim(std::size_t share, std::uint32_t& index) {
    std::atomic<std::uint64_t>& unclaimed = shares_[share].unclaimed;
    std::uint64_t word = unclaimed.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(word) != 0) {
      if (unclaimed.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        index = static_cast<std::uint32_t>(begin_of(share + 1)) - static_cast<std::uint32_t>(word);
        return true;
      }
    }
    return false;
  }

  bool claim_all(int worker) {
    const std::size_t own = static_cast<std::size_t>(worker), count = shares_.size();
    std::uint32_t finished = 0;
    for (std::size_t share = own; share < own + count; ++share) {
      for (std::uint32_t index = 0; claim(share % count, index); share = own, ++finished) attempt(index, worker);
    }
    if (finished > 0) unfinished_.fetch_sub(finished, std::memory_order_release);
    return finished > 0;
  }

  /// Lets the workers start. Their number is unknown before.
  void begin() {
    begun_.store(true, std::memory_order_release);
    detail::wake_waiters(begun_);
  }

  void serve(int worker) {
    detail::wait_while(begun_, false);
    const detail::FloatEnvironment environment;
    const detail::BusErrorsTaken taken;
    for (int spins = 0; !stopping_.load(std::memory_order_relaxed);) {
      if (claim_all(worker)) {
        spins = 0;
      } else if (++spins < spins_before_sleep) {
        relax(spins);
      } else {
        sleep();
        spins = 0;
      }
    }
  }

  void sleep() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = wakeups_.load(std::memory_order_seq_cst);
    const bool idle = std::all_of(shares_.begin(), shares_.end(), [](const Share& share) {
      return static_cast<std::uint32_t>(share.unclaimed.load(std::memory_order_seq_cst)) == 0;
    });
    if (idle && !stopping_.load(std::memory_order_seq_cst)) detail::wait_while(wakeups_, seen);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  void stop() {
    stopping_.store(true, std::memory_order_seq_cst);
    begin();
    wakeups_.fetch_add(1, std::memory_order_seq_cst);
    detail::wake_waiters(wakeups_);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::vector<Share> shares_;
  std::mutex turn_;
  std::shared_ptr<Executor> executor_;  // null: the workers
  std::atomic<int> ended_{0};           // parts of the executor in this loop
  alignas(64) Call call_ = nullptr;
  void* context_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint64_t round_ = 0;
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  alignas(64) std::atomic<std::uint32_t> wakeups_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> begun_{false};
  std::mutex fault_mutex_;
  std::exception_ptr fault_ = nullptr;  // the first exception of the current loop
  std::vector<std::thread> workers_;
  slm::detail::Affinity affinity_;
};

}}}
