// Devices and ranks around the simulated NCCL: host memory, streams that work only when polled, and the exceptions of
// each rank.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/fake_nccl.hpp"
#include "slm/ranks/nccl.hpp"
#include "slm/ranks/threads.hpp"
#include "support/rank_answers.hpp"

namespace slm::testing {

inline constexpr std::chrono::milliseconds patience(1000);  // where it must end

inline thread_local int current_device = -1;

/// A device with host memory, whose streams work only while they are polled.
struct Device {
  using Work = std::function<bool()>;

  class Stream {
   public:
    std::deque<Work>* handle() const { return work_.get(); }
    void push(Work work) { work_->push_back(std::move(work)); }

   private:
    std::unique_ptr<std::deque<Work>> work_ = std::make_unique<std::deque<Work>>();
  };

  struct Current {
    explicit Current(int device) : before(std::exchange(current_device, device)) {}
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() { current_device = before; }
    int before;
  };

  Current current() const { return Current(number); }
  bool idle(Stream& stream) {
    if (lost) throw Error("gpu.failed", "the device is lost", "Get another");
    while (!stream.handle()->empty() && stream.handle()->front()()) stream.handle()->pop_front();
    return stream.handle()->empty();
  }

  int number = 0;
  bool lost = false;
};

using Nccl = ranks::Nccl<Device, ranks::Threads>;
static_assert(ranks::Communicator<Nccl>);
static_assert(ranks::NcclRuntime<Device>);

/// The calls with device memory, each followed by a wait.
struct OnDevice {
  int rank() const { return nccl.rank(); }
  int size() const { return nccl.size(); }
  void broadcast(std::span<std::byte> bytes, int root) const {
    nccl.broadcast(bytes, root, stream);
    nccl.wait(stream);
  }
  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes,
                  std::span<std::byte> all) const {
    nccl.all_gather(share, sizes, all, stream);
    nccl.wait(stream);
  }
  void all_reduce(std::span<std::uint64_t> numbers, ranks::Reduction reduction) const {
    nccl.all_reduce(numbers, reduction, stream);
    nccl.wait(stream);
  }
  void barrier() const { nccl.barrier(); }

  const Nccl& nccl;
  Device::Stream& stream;
};

/// With equal sizes, which are another call of NCCL.
inline int wrong_equal_shares(const Nccl& nccl, Device::Stream& stream) {
  const auto size = static_cast<std::size_t>(nccl.size());
  const std::vector<std::uint64_t> share(3, static_cast<std::uint64_t>(nccl.rank()) + 5);
  const std::vector<std::size_t> sizes(size, 3 * sizeof(std::uint64_t));
  std::vector<std::uint64_t> all(3 * size);
  nccl.all_gather(std::as_bytes(std::span(share)), sizes, std::as_writable_bytes(std::span(all)), stream);
  nccl.wait(stream);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) wrong += all[i] != i / 3 + 5;
  return wrong;
}

/// All operations between the ranks' devices, once.
inline int everything(const Nccl& nccl, Device::Stream& stream, int round = 0) {
  return wrong_answers(OnDevice{nccl, stream}, round) + wrong_equal_shares(nccl, stream);
}

/// The exception with which a rank has ended.
struct End {
  std::string id = "no error", sentence = "";
  bool says(const std::string& part) const { return sentence.find(part) != std::string::npos; }
};

/// Clears the state, and checks at the end that NCCL's rules were followed and everything is freed.
struct Fresh {
  Fresh() {
    fake::nccl::reset();
    fake::nccl::library().enqueue = [](void* stream, Device::Work work) {
      static_cast<std::deque<Device::Work>*>(stream)->push_back(std::move(work));
    };
    fake::nccl::library().device = [] { return current_device; };
  }
  ~Fresh() {
    CHECK(fake::nccl::library().breaches == std::vector<std::string>{});
    CHECK(fake::nccl::library().live == 0);
    CHECK(fake::nccl::library().open_groups == 0);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(50));  // with a rank's timeout of 60
  }
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};

/// Runs body(host) on each of `size` ranks. A rank that throws reports it to the others, as programs do.
template <class Body>
std::vector<End> run(int size, Body body, std::chrono::milliseconds of_host = std::chrono::seconds(60)) {
  std::vector<End> ends(static_cast<std::size_t>(size));
  const auto act = [&](const ranks::Threads& host) {
    fake::nccl::rank = host.rank();
    current_device = -1;
    End& end = ends[static_cast<std::size_t>(host.rank())];
    try {
      body(host);
    } catch (const Error& error) {
      end = {error.id(), error.what()};
      host.fail(end.sentence);
    }
  };
  std::vector<std::jthread> threads;
  for (const ranks::Threads& host : ranks::Threads::group(size, of_host)) threads.emplace_back(act, host);
  threads.clear();
  return ends;
}

/// Every rank except `failed` received the failure.
inline void check_others_know(const std::vector<End>& ends, int failed) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (static_cast<int>(rank) == failed) continue;
    INFO("rank " << rank << ": " << ends[rank].sentence);
    CHECK(ends[rank].id == "ranks.failed");
    CHECK(ends[rank].says("rank " + std::to_string(failed)));
  }
}

/// Calls by function, of one rank.
inline std::vector<std::string> calls_of(int rank) {
  std::vector<std::string> names;
  for (const auto& call : fake::nccl::library().calls)
    if (call.rank == rank) names.push_back(call.function);
  return names;
}

}  // namespace slm::testing
