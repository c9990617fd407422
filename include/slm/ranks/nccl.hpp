// ranks::Nccl: ranks with one GPU each. NVIDIA's NCCL and AMD's RCCL have the same interface, so one source serves
// both. The only header that includes theirs.
#pragma once

#if defined(__HIP__)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "slm needs NCCL or RCCL 2.14 or newer, which have non-blocking calls"
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// Requirements on a GPU runtime besides streams.
///  current   makes this device the calling thread's current one while the returned object lives
///  idle      whether all submitted work of the stream has finished; does not wait
template <class R>
concept NcclRuntime = std::copyable<R> && requires(R runtime, const R& constant, typename R::Stream& stream) {
  constant.current();
  { runtime.idle(stream) } -> std::same_as<bool>;
  stream.handle();
};

/// Messages in host memory use `Host`, the communicator without GPUs; it also connects the ranks and reports failed
/// ones.
/// With a stream, the same calls operate on device memory.
///
/// NCCL calls are polled instead of waited for, so no call or wait() exceeds the timeout plus the host's. A rank that
/// gives up aborts its device's pending work; the others learn of it through the host.
template <NcclRuntime R, Communicator Host>
class Nccl {
 public:
  using Stream = typename R::Stream;

  /// Collective over `host`; each rank must have another device. Throws ranks.nccl, ranks.failed, ranks.different.
  Nccl(Host host, R runtime, std::chrono::milliseconds patience = std::chrono::seconds(60))
      : Nccl(host, std::move(runtime), patience, host.rank()) {}

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }

  void broadcast(std::span<std::byte> bytes, int root) const { host_.broadcast(bytes, root); }
  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes,
                  std::span<std::byte> all) const {
    host_.all_gather(share, sizes, all);
  }
  void all_reduce(std::span<std::uint64_t> numbers, Reduction reduction) const { host_.all_reduce(numbers, reduction); }
  void barrier() const { host_.barrier(); }
  Nccl split(int color, int key) const {
    return Nccl(host_.split(color, key), link_->runtime(), link_->patience(), link_->number());
  }
  void fail(const auto& reason) const { host_.fail(reason); }
  void poll() const { host_.poll(); }

  // Device calls return when the call is queued on the stream.

  void broadcast(std::span<std::byte> bytes, int root, Stream& stream) const {
    if (bytes.empty()) return;
    link_->call("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(bytes.data(), bytes.data(), bytes.size(), ncclUint8, root, comm, stream.handle());
    });
  }

  /// Equal shares are one NCCL call. Other shares are one broadcast each, in one group: padding to the largest would
  /// need another buffer, whose address a captured stream keeps, and a copy per rank.
  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes, std::span<std::byte> all,
                  Stream& stream) const {
    const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    if (sizes.size() != static_cast<std::size_t>(size()) || sizes[static_cast<std::size_t>(rank())] != share.size() ||
        total != all.size()) {
      throw Error("ranks.out-of-step", text("rank ", link_->number(), ": expected gathered shares of matching sizes"),
                  "Let all ranks run the same program on the same requests");
    }
    if (total == 0) return;
    if (std::all_of(sizes.begin(), sizes.end(), [&](std::size_t one) { return one == share.size(); })) {
      return link_->call("ncclAllGather", [&](ncclComm_t comm) {
        return ncclAllGather(share.data(), all.data(), share.size(), ncclUint8, comm, stream.handle());
      });
    }
    link_->call("a group of ncclBroadcast", [&](ncclComm_t comm) {
      const auto taken = [](ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; };
      ncclResult_t result = ncclGroupStart();
      if (result != ncclSuccess) return result;
      std::byte* part = all.data();
      for (int root = 0; root < size() && taken(result); ++root) {
        const std::size_t bytes = sizes[static_cast<std::size_t>(root)];
        const std::byte* const from = root == rank() ? share.data() : part;
        if (bytes > 0) result = ncclBroadcast(from, part, bytes, ncclUint8, root, comm, stream.handle());
        part += bytes;
      }
      const ncclResult_t ended =
          ncclGroupEnd();  // also after a failure, otherwise this thread's next calls join the group
      return taken(result) ? ended : result;
    });
  }

  void all_reduce(std::span<std::uint64_t> numbers, Reduction reduction, Stream& stream) const {
    if (numbers.empty()) return;
    link_->call("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(numbers.data(), numbers.data(), numbers.size(), ncclUint64,
                           reduction == Reduction::sum ? ncclSum : ncclMax, comm, stream.handle());
    });
  }

  /// Waits for all submitted work of the stream. The runtime's own wait could block forever if a rank is missing.
  void wait(Stream& stream) const { link_->wait(stream); }

 private:
  /// This rank's connection between the devices.
  class Link {
   public:
    Link(const Host& host, R runtime, std::chrono::milliseconds patience, int number)
        : host_(host.split(0, host.rank())), runtime_(std::move(runtime)), patience_(patience), number_(number) {
      or_give_up([this] { open(); });
    }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    /// Waits for the others, unless something has failed.
    ~Link() {
      try {
        if (comm_ != nullptr && std::uncaught_exceptions() == exceptions_) {
          ncclResult_t result = ncclCommFinalize(comm_);
          if (settles(result) && result == ncclSuccess)
            static_cast<void>(ncclCommDestroy(std::exchange(comm_, nullptr)));
        }
      } catch (...) {  // another rank has failed
      }
      give_up();
    }

    const R& runtime() const { return runtime_; }
    std::chrono::milliseconds patience() const { return patience_; }
    int number() const { return number_; }

    /// make(comm) calls NCCL. Returns when NCCL has queued the work on the stream.
    template <class Make>
    void call(const char* name, Make make) {
      require_open();
      or_give_up([&] {
        [[maybe_unused]] const auto current = runtime_.current();
        ++calls_;
        settle(name, make(comm_));
      });
    }

    void wait(Stream& stream) {
      require_open();
      or_give_up([&] {
        ncclResult_t result = ncclSuccess;
        const bool ends = comes([&] {
          const bool idle = runtime_.idle(stream);  // tested first: aborted work becomes idle too
          result = state();
          return result != ncclInProgress && (idle || result != ncclSuccess);
        });
        if (!ends) late("a stream");
        check("a stream", result);
      });
    }

   private:
    /// Rank 0 sends the connection id to the others through the host.
    void open() {
      int version = 0;
      check("ncclGetVersion", ncclGetVersion(&version));
      require_same(host_, "version of NCCL", static_cast<std::uint64_t>(version));
      ncclUniqueId id{};
      [[maybe_unused]] const auto current = runtime_.current();
      if (host_.rank() == 0) check("ncclGetUniqueId", ncclGetUniqueId(&id));
      host_.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      settle("ncclCommInitRankConfig", ncclCommInitRankConfig(&comm_, host_.size(), id, host_.rank(), &config));
    }

    void require_open() const {
      if (comm_ != nullptr) return;
      throw Error("ranks.failed", text("rank ", number_, " has closed its NCCL communicator after a failure"),
                  "Fix that rank's failure, and start all ranks again");
    }

    template <class Body>
    void or_give_up(Body body) {
      try {
        body();
      } catch (...) {
        give_up();
        throw;
      }
    }

    /// Aborts the device's pending work; needs no other rank.
    void give_up() noexcept {
      if (comm_ != nullptr) static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
    }

    /// NCCL's status of the last call and of asynchronous work.
    ncclResult_t state() const {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      return asked == ncclSuccess ? state : asked;
    }

    /// Polls done(); returns false after the timeout. Throws if a rank is known to have failed.
    template <class Done>
    bool comes(Done done) const {
      const auto began = std::chrono::steady_clock::now();
      for (unsigned tries = 1; !done(); ++tries) {
        if (tries % 1000 != 0) continue;
        host_.poll();
        const auto waited = std::chrono::steady_clock::now() - began;
        if (waited > patience_) return false;
        if (waited > std::chrono::milliseconds(20)) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        } else {
          std::this_thread::yield();
        }
      }
      return true;
    }

    bool settles(ncclResult_t& result) const {
      return comes([&] {
        if (result == ncclInProgress) result = state();
        return result != ncclInProgress;
      });
    }
    void settle(const char* name, ncclResult_t result) {
      if (!settles(result)) late(name);
      check(name, result);
    }

    void check(const char* name, ncclResult_t result) {
      if (result == ncclSuccess) return;
      const Error error =
          failed(text(name, " reports: ", ncclGetErrorString(result), " (", excerpt(ncclGetLastError(comm_)), ")"));
      give_up();
      if (result == ncclRemoteError) call_the_roll();
      throw error;
    }
    void late(const char* name) {
      give_up();
      call_the_roll();
      throw failed(text(name, " did not complete within ", patience_.count(), " ms, though all ranks have called it"));
    }
    Error failed(const std::string& sentence) const {
      return Error("ranks.nccl", text("rank ", number_, ": ", sentence),
                   "Set NCCL_DEBUG=WARN and check NCCL's output about devices and network");
    }

    /// Called after a timeout: the host identifies a missing rank, or a rank that has made other calls.
    void call_the_roll() const {
      using Entry = std::array<std::uint64_t, 2>;  // number, calls
      const Entry own{static_cast<std::uint64_t>(number_), calls_};
      std::vector<Entry> all(static_cast<std::size_t>(host_.size()));
      const std::vector<std::size_t> sizes(all.size(), sizeof own);
      host_.all_gather(std::as_bytes(std::span(own)), sizes, std::as_writable_bytes(std::span(all)));
      for (const auto& [number, calls] : all) {
        if (calls == calls_) continue;
        throw Error("ranks.out-of-step",
                    text("rank ", number, " has made ", calls, " calls of NCCL, and rank ", number_, " ", calls_),
                    "Let all ranks run the same program on the same requests");
      }
    }

    Host host_;  // a separate group, so that the roll call does not mix with other messages
    R runtime_;
    std::chrono::milliseconds patience_;
    int number_;  // of this rank, in the original group
    int exceptions_ = std::uncaught_exceptions();
    ncclComm_t comm_ = nullptr;  // null: not open, or aborted
    std::uint64_t calls_ = 0;
  };

  Nccl(Host host, R runtime, std::chrono::milliseconds patience, int number)
      : host_(std::move(host)), link_(std::make_shared<Link>(host_, std::move(runtime), patience, number)) {}

  Host host_;
  std::shared_ptr<Link> link_;
};

}}}
