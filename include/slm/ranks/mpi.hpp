// ranks::Mpi: ranks as processes on one or several machines, started by mpirun or srun. The only header that includes
// MPI.
#pragma once

// Disables MPI's obsolete C++ interface.
#if !defined(OMPI_SKIP_MPICXX)
#define OMPI_SKIP_MPICXX
#endif
#if !defined(MPICH_SKIP_MPICXX)
#define MPICH_SKIP_MPICXX
#endif
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// Initialises MPI and finalises it in the destructor, which waits for the other ranks. One per program.
class MpiSession {
 public:
  using LastWords = std::function<void(const std::string& why)>;

  /// last_words: called before this rank aborts all processes.
  explicit MpiSession(LastWords last_words = {}) {
    last_words_ = std::move(last_words);
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS &&
        provided >= MPI_THREAD_SERIALIZED) {
      return;
    }
    throw Error("ranks.mpi", "expected MPI to start with support for threads, but it did not",
                "Start the program with the mpirun of the MPI that it was built with");
  }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession() { MPI_Finalize(); }

  /// Aborts the processes of all ranks, including this one.
  static void fail(int status) { MPI_Abort(MPI_COMM_WORLD, status); }
  static void fail(int status, std::string_view why) noexcept {
    try {
      if (last_words_) last_words_(std::string(why));
    } catch (...) {  // the processes end anyway
    }
    fail(status);
  }

 private:
  static inline LastWords last_words_;
};

/// Threads of a rank lock MPI per call, so calls on two groups can progress concurrently.
class MpiTurn {
 public:
  MpiTurn() {
    for (int tries = 1; busy.test_and_set(std::memory_order_acquire); ++tries) {
      if (tries % 64 == 0) std::this_thread::yield();
    }
  }
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;
  ~MpiTurn() { busy.clear(std::memory_order_release); }

 private:
  static inline std::atomic_flag busy;
};

/// Every call consists of point-to-point messages that are polled. So a missing rank is identified by number, and no
/// call exceeds the timeout `patience`.
class Mpi {
 public:
  /// All ranks of the program, while its MpiSession lives.
  explicit Mpi(std::chrono::milliseconds patience = std::chrono::seconds(60)) : Mpi(MPI_COMM_WORLD, patience) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  void broadcast(std::span<std::byte> bytes, int root) const {
    Messages messages(*this);
    if (rank_ != root) messages.receive(root, bytes);
    for (int rank = 0; rank_ == root && rank < size(); ++rank) messages.send(rank, bytes);
    messages.wait();
  }

  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes,
                  std::span<std::byte> all) const {
    const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    if (sizes.size() != members_.size() || sizes[place()] != share.size() || total != all.size()) throw out_of_step();
    Messages messages(*this);
    std::size_t first = 0;
    for (int rank = 0; rank < size(); ++rank) {
      const auto part = all.subspan(first, sizes[static_cast<std::size_t>(rank)]);
      if (rank == rank_) std::copy(share.begin(), share.end(), part.begin());
      messages.receive(rank, part);
      first += part.size();
    }
    for (int rank = 0; rank < size(); ++rank) messages.send(rank, share);
    messages.wait();
  }

  void all_reduce(std::span<std::uint64_t> numbers, Reduction reduction) const {
    const std::size_t count = numbers.size();
    std::vector<std::uint64_t> all(count * members_.size());  // [ranks, count]
    const std::vector<std::size_t> sizes(members_.size(), numbers.size_bytes());
    all_gather(std::as_bytes(numbers), sizes, std::as_writable_bytes(std::span(all)));
    std::copy_n(all.begin(), count, numbers.begin());
    for (std::size_t i = count; i < all.size(); ++i) {
      std::uint64_t& number = numbers[i % count];
      number = reduction == Reduction::sum ? number + all[i] : std::max(number, all[i]);
    }
  }

  void barrier() const {
    std::uint64_t nothing = 0;
    all_reduce({&nothing, 1}, Reduction::max);
  }

  Mpi split(int color, int key) const {
    barrier();  // MPI's own call could block forever
    MPI_Comm part = MPI_COMM_NULL;
    {
      const MpiTurn turn;
      check(MPI_Comm_split(comm(), color, key, &part));
    }
    return Mpi(part, patience_, sleeps_);
  }

  /// A handle of the same rank whose calls, and those of its splits, sleep early: for a thread that waits while another
  /// computes.
  Mpi sleeping() const {
    Mpi other = *this;
    other.sleeps_ = true;
    return other;
  }

  /// Aborts the processes of all ranks, after the session's last_words.
  void fail(std::string_view reason) const { MpiSession::fail(1, reason); }
  void poll() const {}

 private:
  /// The messages of one call, which refer to the caller's memory. If the call fails, receives are cancelled and sends
  /// get the time of one call to complete. Then the processes of all ranks are aborted, since a send cannot be
  /// cancelled.
  class Messages {
   public:
    explicit Messages(const Mpi& ranks) : ranks_(ranks) {}
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;
    ~Messages() {
      {
        const MpiTurn turn;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
          if (requests_[i] == MPI_REQUEST_NULL || !receives_[i]) continue;
          MPI_Cancel(&requests_[i]);
          MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);  // does not depend on another rank
        }
      }
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        while (!is_sent(i)) {
          if (std::chrono::steady_clock::now() - began_ > ranks_.patience_) ranks_.end_processes(peers_[i]);
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }
    }

    void receive(int rank, std::span<std::byte> bytes) {
      each_piece(rank, bytes.size(), true, [&](std::size_t first, int count, MPI_Request* request) {
        return MPI_Irecv(bytes.data() + first, count, MPI_BYTE, rank, 0, ranks_.comm(), request);
      });
    }
    void send(int rank, std::span<const std::byte> bytes) {
      each_piece(rank, bytes.size(), false, [&](std::size_t first, int count, MPI_Request* request) {
        return MPI_Isend(bytes.data() + first, count, MPI_BYTE, rank, 0, ranks_.comm(), request);
      });
    }

    void wait() {
      std::size_t first = 0;  // first incomplete message
      for (int tries = 0; first < requests_.size(); ++tries) {
        if (is_through(first)) {
          ++first;
          continue;
        }
        if (tries % 1000 != 999) continue;  // about 0.1 ms: nearly all calls have completed by then
        const auto waited = std::chrono::steady_clock::now() - began_;
        if (waited > ranks_.patience_) throw ranks_.late(peers_[first]);
        if (ranks_.sleeps_) {
          std::this_thread::sleep_for(std::clamp<std::chrono::steady_clock::duration>(
              waited / 8, std::chrono::microseconds(10), std::chrono::microseconds(100)));
          tries += 900;
        } else if (waited > std::chrono::milliseconds(20)) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        } else {
          std::this_thread::yield();
        }
      }
    }

   private:
    static constexpr std::size_t most = std::size_t{1} << 30;  // bytes per message: MPI counts them in an int

    bool is_through(std::size_t message) {
      const MpiTurn turn;
      int done = 0, count = 0;
      MPI_Status status;
      check(MPI_Test(&requests_[message], &done, &status));
      if (done == 0) return false;
      check(MPI_Get_count(&status, MPI_BYTE, &count));
      if (receives_[message] && count != expected_[message]) throw ranks_.out_of_step();
      return true;
    }
    bool is_sent(std::size_t message) {
      const MpiTurn turn;
      int done = 0;
      return MPI_Test(&requests_[message], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
    }

    template <class Post>
    void each_piece(int rank, std::size_t size, bool receives, Post post) {
      for (std::size_t first = 0; rank != ranks_.rank_ && first < size; first += most) {
        const int count = static_cast<int>(std::min(most, size - first));
        peers_.push_back(rank);
        receives_.push_back(receives);
        expected_.push_back(count);
        requests_.push_back(MPI_REQUEST_NULL);
        const MpiTurn turn;
        check(post(first, count, &requests_.back()));
      }
    }

    const Mpi& ranks_;
    std::vector<MPI_Request> requests_;
    std::vector<int> peers_;  // of each request
    std::vector<bool> receives_;
    std::vector<int> expected_;  // bytes of each
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  };

  Mpi(MPI_Comm comm, std::chrono::milliseconds patience, bool sleeps = false) : patience_(patience), sleeps_(sleeps) {
    const auto release = [](const MPI_Comm* held) {
      const MpiTurn its_turn;
      int ended = 0;
      if (*held != MPI_COMM_WORLD && MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0) {
        MPI_Comm part = *held;
        MPI_Comm_free(&part);
      }
      delete held;
    };
    comm_ = std::shared_ptr<const MPI_Comm>(new MPI_Comm(comm), release);
    const MpiTurn turn;
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    int size = 0;
    check(MPI_Comm_rank(comm, &rank_));
    check(MPI_Comm_size(comm, &size));
    std::vector<int> places(static_cast<std::size_t>(size));
    std::iota(places.begin(), places.end(), 0);
    members_.resize(places.size());
    MPI_Group all = MPI_GROUP_NULL, own = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &all));
    check(MPI_Comm_group(comm, &own));
    check(MPI_Group_translate_ranks(own, size, places.data(), all, members_.data()));
    check(MPI_Group_free(&own));
    check(MPI_Group_free(&all));
  }

  MPI_Comm comm() const { return *comm_; }
  std::size_t place() const { return static_cast<std::size_t>(rank_); }

  static void check(int result) {
    if (result == MPI_SUCCESS) return;
    char sentence[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(result, sentence, &length);
    throw Error("ranks.mpi", text("MPI reports: ", sentence),
                "Check the output of the launcher and of the other ranks");
  }

  Error late(int rank) const {
    return Error("ranks.failed",
                 text("rank ", members_[static_cast<std::size_t>(rank)], " did not arrive within ", patience_.count(),
                      " ms (rank ", members_[place()], " has waited)"),
                 "Fix that rank's failure, and start all ranks again");
  }
  /// Needed if a message to the rank is incomplete and its memory is about to be freed.
  void end_processes(int rank) const noexcept {
    try {
      fail(late(rank).what());
    } catch (const std::bad_alloc&) {
      MpiSession::fail(1);
    }
  }
  Error out_of_step() const {
    return Error(
        "ranks.out-of-step",
        text("expected the same call on all ranks, found another than rank ", members_[place()], "'s, or other sizes"),
        "Let all ranks run the same program on the same requests");
  }

  std::shared_ptr<const MPI_Comm> comm_;
  std::chrono::milliseconds patience_;
  bool sleeps_;
  std::vector<int> members_;  // ranks in the program
  int rank_ = 0;
};

static_assert(Communicator<Mpi>);

}}}
