// GuardedMapping on POSIX systems. A handler of SIGBUS replaces missing pages.
#pragma once

#if !defined(_WIN32)

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// An entry in the table of mappings. The signal handler uses it: no lock, no allocation.
class MappingEntry {
 public:
  /// Returns true if the entry was free and now holds these bytes.
  bool take(const void* begin, std::size_t size) noexcept {
    std::uint32_t free = turn_.load();
    if (free % 4 != 0 || !turn_.compare_exchange_strong(free, free + 1)) return false;
    begin_ = reinterpret_cast<std::uintptr_t>(begin);
    size_ = size;
    damaged_ = false;
    turn_ = free + 2;
    return true;
  }
  void release() noexcept { turn_ += 2; }

  /// Returns true if an earlier read hit a missing page.
  bool damaged() const noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return damaged_.load(std::memory_order_acquire);
  }

  /// If the address is inside the mapping: marks the mapping as damaged and maps zeros from the address's page to the
  /// end. Returns true if it did.
  bool replace_from(std::uintptr_t address) noexcept {
    const std::uint32_t turn = turn_;
    if (turn % 4 != 2) return false;
    const std::uintptr_t begin = begin_, size = size_;
    if (address - begin >= size || turn_ != turn) return false;
    damaged_ = true;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = address / page * page, end = (begin + size + page - 1) / page * page;
    return map_zeros(reinterpret_cast<void*>(first), end - first);
  }

 private:
  /// Atomic for other threads that read the pages. Uses the raw system call because sanitizers treat mmap() as a write.
  static bool map_zeros(void* place, std::size_t size) noexcept {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
#if defined(__linux__) && defined(SYS_mmap)
    return ::syscall(SYS_mmap, place, size, PROT_READ, flags, -1, 0L) != -1;
#else
    return ::mmap(place, size, PROT_READ, flags, -1, 0) != MAP_FAILED;
#endif
  }

  // State (value % 4): 0 free, 1 being taken, 2 in use. A changed value means that the entry now holds another mapping.
  std::atomic<std::uint32_t> turn_{0};
  std::atomic<std::uintptr_t> begin_{0};
  std::atomic<std::uintptr_t> size_{0};
  std::atomic<bool> damaged_{false};
};

class MappingTable {
 public:
  /// Returns null if all entries are in use.
  static MappingEntry* enter(const void* begin, std::size_t size) noexcept {
    for (MappingEntry& entry : entries_) {
      if (entry.take(begin, size)) return &entry;
    }
    return nullptr;
  }

  /// Installs the SIGBUS handler on the first call. Returns true if it is installed.
  static bool install() noexcept {
    static const bool installed = [] {
      if (::sigaction(SIGBUS, nullptr, &before_) != 0) return false;
      struct sigaction action = before_;  // keep the mask of the previous handler
      action.sa_sigaction = handle;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before_.sa_flags & (SA_RESTART | SA_NODEFER));
      return ::sigaction(SIGBUS, &action, nullptr) == 0;
    }();
    return installed;
  }

 private:
  static void handle(int number, siginfo_t* info, void* context) {
    const int error = errno;
    if (!replace(*info)) pass_on(number, info, context);
    errno = error;
  }

  static bool replace(const siginfo_t& info) noexcept {
    if (info.si_code <= 0 || info.si_code == BUS_ADRALN) return false;  // sent by a program, or a misaligned address
    const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
    for (MappingEntry& entry : entries_) {
      if (entry.replace_from(address)) return true;
    }
    return false;
  }

  /// Applies the previous disposition of the signal.
  static void pass_on(int number, siginfo_t* info, void* context) {
    const bool has_info = (before_.sa_flags & SA_SIGINFO) != 0;
    const bool standard = !has_info && before_.sa_handler == SIG_DFL;
    const bool ignored = !has_info && before_.sa_handler == SIG_IGN;
    bool sent = info->si_code <= 0;  // otherwise the instruction faults again
#if defined(BUS_MCEERR_AO)
    sent = sent || info->si_code == BUS_MCEERR_AO;
#endif
    if (ignored && sent) return;
    if (standard || ignored || (static_cast<unsigned>(before_.sa_flags) & unsigned{SA_RESETHAND}) != 0) {
      struct sigaction action {};
      action.sa_handler = SIG_DFL;
      ::sigaction(number, &action, nullptr);
    }
    if (standard || ignored) {
      if (sent) ::raise(number);
    } else if (has_info) {
      before_.sa_sigaction(number, info, context);
    } else {
      before_.sa_handler(number);
    }
  }

  static inline std::array<MappingEntry, 1024> entries_{};
  static inline struct sigaction before_ {};  // set before the handler is installed
};

/// The first `size` bytes of a file, mapped read-only.
class GuardedMapping {
 public:
  GuardedMapping() = default;

  /// data() is null if mapping fails: errno is the reason, or 0 if the guard is unavailable.
  GuardedMapping(int file, std::size_t size) : size_(size) {
    errno = 0;
    if (!MappingTable::install()) {
      errno = 0;
      return;
    }
    void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) return;
    entry_ = MappingTable::enter(data, size_);
    if (entry_ == nullptr) {
      ::munmap(data, size_);
      errno = 0;
      return;
    }
    data_ = static_cast<const std::byte*>(data);
  }

  GuardedMapping(GuardedMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_), entry_(other.entry_) {}
  GuardedMapping& operator=(GuardedMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~GuardedMapping() {
    if (data_ == nullptr) return;
    entry_->release();
    ::munmap(const_cast<std::byte*>(data_), size_);
  }

  /// Null if not mapped.
  const std::byte* data() const { return data_; }
  bool damaged() const { return data_ != nullptr && entry_->damaged(); }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  MappingEntry* entry_ = nullptr;
};

/// Unblocks SIGBUS in the calling thread while it lives. A thread that blocks SIGBUS would end the process on reading a
/// missing page.
class BusErrorsTaken {
 public:
  BusErrorsTaken() noexcept {
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    known_ = ::pthread_sigmask(SIG_UNBLOCK, &bus, &before_) == 0;
  }
  BusErrorsTaken(const BusErrorsTaken&) = delete;
  BusErrorsTaken& operator=(const BusErrorsTaken&) = delete;
  ~BusErrorsTaken() {
    if (known_ && sigismember(&before_, SIGBUS) == 1) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
  bool known_ = false;
};

}}}

#endif
