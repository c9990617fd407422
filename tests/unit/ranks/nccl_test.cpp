// ranks::Nccl over a simulated NCCL: results, order, streams, sizes and groups of its calls; and every failure, on any
// rank, is soon reported on all ranks by its name.
#include "slm/ranks/nccl.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nccl/played_device.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/rank_answers.hpp"

using namespace slm;
using namespace slm::testing;
using fake::nccl::library;
using ranks::Reduction;
using ranks::Threads;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

TEST_CASE("devices and the host get the values of all ranks, for 1 to 4 ranks, repeatedly") {
  for (const int size : {1, 2, 3, 4}) {
    const Fresh fresh;
    std::atomic<int> wrong{0};
    const auto ends = run(size, [&](const Threads& host) {
      const Nccl nccl(host, Device{host.rank()});
      Device::Stream stream;
      wrong += nccl.rank() != host.rank() || nccl.size() != size;
      for (int round = 0; round < 5; ++round) wrong += everything(nccl, stream, round) + wrong_answers(nccl, round);
      nccl.poll();
    });
    CAPTURE(size);
    CHECK(wrong == 0);
    for (const End& end : ends) CHECK(end.sentence == "");
  }
}

TEST_CASE("equal sizes are one call, others one broadcast each in one group, and empty ones no call") {
  const Fresh fresh;
  std::atomic<int> refused{0};
  run(3, [&](const Threads& host) {
    const Nccl nccl(host, Device{host.rank()});
    Device::Stream stream;
    const auto gather = [&](const std::vector<std::size_t>& sizes) {
      const std::vector<std::byte> share(sizes[static_cast<std::size_t>(host.rank())]);
      std::vector<std::byte> all(sizes[0] + sizes[1] + sizes[2]);
      nccl.all_gather(share, sizes, all, stream);
      nccl.wait(stream);
    };
    gather({4, 4, 4});
    gather({5, 0, 7});
    gather({5, 6, 7});
    gather({0, 0, 0});
    nccl.broadcast({}, 1, stream);
    nccl.all_reduce({}, Reduction::sum, stream);
    refused += error_id([&] {
                 nccl.all_gather({}, std::vector<std::size_t>{0, 0, 0, 0}, {}, stream);
               }) == "ranks.out-of-step";
  });
  CHECK(refused == 3);
  std::vector<std::string> expected{"ncclGetVersion",   "ncclCommInitRankConfig", "ncclAllGather", "ncclGroupStart",
                                    "ncclBroadcast",    "ncclBroadcast",          "ncclGroupEnd",  "ncclGroupStart",
                                    "ncclBroadcast",    "ncclBroadcast",          "ncclBroadcast", "ncclGroupEnd",
                                    "ncclCommFinalize", "ncclCommDestroy"};
  for (const int rank : {1, 2}) CHECK(calls_of(rank) == expected);
  expected.insert(expected.begin() + 1, "ncclGetUniqueId");
  CHECK(calls_of(0) == expected);
  for (const auto& call : library().calls) {
    if (call.function == "ncclAllGather") CHECK((call.bytes == 4 && !call.grouped));
    if (call.function == "ncclBroadcast")
      CHECK((call.grouped && call.bytes == static_cast<std::size_t>(5 + call.root)));
  }
}

TEST_CASE("calls use the order of their stream, and return before it runs") {
  const Fresh fresh;
  std::atomic<int> wrong{0};
  const void* handles[2] = {};
  run(2, [&](const Threads& host) {
    const Nccl nccl(host, Device{host.rank()});
    Device::Stream stream, other;
    std::vector<std::uint64_t> numbers{0};
    std::uint64_t between = 0;
    stream.push([&] {
      numbers[0] = 7;
      return true;
    });
    nccl.all_reduce(numbers, Reduction::sum, stream);
    stream.push([&] {
      between = std::exchange(numbers[0], 1);
      return true;
    });
    nccl.all_reduce(numbers, Reduction::sum, stream);
    nccl.wait(other);
    wrong += numbers[0] != 0;
    nccl.wait(stream);
    wrong += between != 14 || numbers[0] != 2;
    handles[host.rank()] = stream.handle();
  });
  for (const auto& call : library().calls)
    if (call.function == "ncclAllReduce") CHECK(call.stream == handles[call.rank]);
  CHECK(wrong == 0);
}

TEST_CASE("a split group has a separate communicator, and messages keep the ranks' numbers") {
  const Fresh fresh;
  std::atomic<int> wrong{0};
  library().faults = {{"ncclAllGather", 2, ncclSystemError, false, {}, 4}};
  const auto ends = run(4, [&](const Threads& host) {
    const Nccl all(host, Device{host.rank()});
    const Nccl part = all.split(host.rank() / 2, -host.rank());
    Device::Stream stream;
    wrong += part.size() != 2 || part.rank() != 1 - host.rank() % 2;
    for (int round = 0; round < 2 + host.rank() / 2; ++round) wrong += everything(part, stream, round);
    wrong += everything(all, stream);
    everything(part, stream);
  });
  CHECK(wrong == 0);
  CHECK(ends[2].id == "ranks.nccl");
  CHECK(ends[2].says("rank 2: ncclAllGather"));
  CHECK(ends[3].says("rank 2 has failed"));
}

TEST_CASE("every failing call, immediate or later, is an error with its rank, which the others receive") {
  std::vector<fake::nccl::Fault> faults{{"ncclGetUniqueId", 0}};
  for (const int rank : {0, 2}) {
    for (const char* function : {"ncclGetVersion", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclGroupStart",
                                 "ncclBroadcast", "ncclGroupEnd", "ncclAllGather", "ncclAllReduce"}) {
      faults.push_back({function, rank});
    }
    for (const char* function : {"ncclCommInitRankConfig", "ncclBroadcast", "ncclAllGather", "ncclAllReduce"})
      faults.push_back({function, rank, ncclUnhandledCudaError, true});
  }
  for (const ncclResult_t result : {ncclUnhandledCudaError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage})
    faults.push_back({"ncclAllGather", 1, result});
  for (const bool peers_notice : {true, false}) {
    for (const auto& fault : faults) {
      INFO(fault.function << " on rank " << fault.rank << (fault.later ? ", later" : ""));
      const Fresh fresh;
      library().faults = {fault};
      library().peers_notice = peers_notice;
      const auto ends = run(3, [&](const Threads& host) {
        const Nccl nccl(host, Device{host.rank()});
        Device::Stream stream;
        everything(nccl, stream);
      });
      const End& end = ends[static_cast<std::size_t>(fault.rank)];
      INFO(end.sentence);
      CHECK(end.id == "ranks.nccl");
      CHECK(end.says("rank " + std::to_string(fault.rank) + ": "));
      CHECK(end.says(" reports: an error of the fake (its last\\x0awords)"));
      if (fault.function != "ncclCommGetAsyncError" && fault.function.substr(0, 9) != "ncclGroup")
        CHECK(end.says(fault.function));
      check_others_know(ends, fault.rank);
    }
  }
}

TEST_CASE("a fault at any call is the error of its rank and ends all ranks") {
  const std::vector<std::string> functions{"ncclCommGetAsyncError", "ncclGroupStart", "ncclBroadcast",   "ncclGroupEnd",
                                           "ncclAllGather",         "ncclAllReduce",  "ncclCommFinalize"};
  std::mt19937 random(1);
  const auto below = [&](std::size_t count) { return static_cast<int>(random() % count); };
  int met = 0;
  for (int round = 0; round < 60; ++round) {
    const Fresh fresh;
    const int size = 2 + below(3), rank = below(static_cast<std::size_t>(size));
    const std::string function = functions[static_cast<std::size_t>(below(functions.size()))];
    const bool later = function != "ncclGroupStart" && function != "ncclCommGetAsyncError" && below(2) == 0;
    library().faults = {{function, rank, ncclInternalError, later, {}, below(12)}};
    library().peers_notice = below(2) == 0;
    INFO(size << " ranks, " << function << " on rank " << rank << " after " << library().faults[0].spared);
    std::atomic<int> wrong{0};
    const auto ends = run(size, [&](const Threads& host) {
      const Nccl nccl(host, Device{host.rank()});
      Device::Stream stream;
      for (int turn = 0; turn < 3; ++turn) wrong += everything(nccl, stream, turn);
      nccl.barrier();  // so that later failures only end the communicator
    });
    const End& end = ends[static_cast<std::size_t>(rank)];
    CHECK(wrong == 0);
    if (end.id == "no error") {
      for (const End& other : ends) CHECK(other.sentence == "");
    } else {
      CHECK(end.id == "ranks.nccl");
      check_others_know(ends, rank);
      ++met;
    }
  }
  CHECK(met > 15);
}

TEST_CASE("a failed communicator accepts no calls") {
  const Fresh fresh;
  const auto ends = run(1, [&](const Threads& host) {
    const Nccl nccl(host, Device{});
    Device::Stream stream;
    library().faults = {{"ncclAllReduce", 0}};
    std::vector<std::uint64_t> numbers{1};
    CHECK(error_id([&] { nccl.all_reduce(numbers, Reduction::max, stream); }) == "ranks.nccl");
    library().faults.clear();
    library().calls.clear();
    CHECK(error_id([&] { nccl.all_reduce(numbers, Reduction::max, stream); }) == "ranks.failed");
    CHECK(error_id([&] { nccl.wait(stream); }) == "ranks.failed");
  });
  CHECK(ends[0].sentence == "");
  CHECK(library().calls.empty());
}

TEST_CASE("a failing end is silent, and aborts the rest") {
  for (const bool later : {false, true}) {
    const Fresh fresh;
    library().faults = {{"ncclCommFinalize", 1, ncclSystemError, later}};
    const auto ends = run(2, [&](const Threads& host) {
      const Nccl nccl(host, Device{host.rank()});
      nccl.barrier();  // until both are open
    });
    for (const End& end : ends) CHECK(end.sentence == "");
    CHECK(calls_of(1).back() == "ncclCommAbort");
  }
}

TEST_CASE("a rank that throws between calls ends the others' wait immediately, with and without NCCL's report") {
  for (const bool peers_notice : {true, false}) {
    const Fresh fresh;
    library().peers_notice = peers_notice;
    const auto ends = run(3, [&](const Threads& host) {
      const Nccl nccl(host, Device{host.rank()});
      Device::Stream stream;
      if (host.rank() == 1) throw Error("made.up", "the disk is full", "Buy another");
      everything(nccl, stream);
    });
    CHECK(ends[1].id == "made.up");
    check_others_know(ends, 1);
    CHECK(ends[0].says("the disk is full"));
  }
}

TEST_CASE("a device that is lost during a wait ends the communicator") {
  const Fresh fresh;
  const auto ends = run(2, [&](const Threads& host) {
    const Nccl nccl(host, Device{host.rank(), host.rank() == 0});
    Device::Stream stream;
    everything(nccl, stream);
  });
  CHECK(ends[0].id == "gpu.failed");
  check_others_know(ends, 0);
  CHECK(calls_of(0).back() == "ncclCommAbort");
}

TEST_CASE("a missing rank is named by the waiting ones") {
  const Fresh fresh;
  std::atomic<int> ended{0};
  const auto until_others_end = [&] {
    const auto began = steady_clock::now();
    while (ended < 2 && steady_clock::now() - began < seconds(50)) std::this_thread::sleep_for(milliseconds(5));
  };
  const auto check = [&](auto body) {
    const auto ends = run(
        3,
        [&](const Threads& host) {
          try {
            body(host);
          } catch (const Error&) {
            ++ended;
            throw;
          }
        },
        patience);
    for (const End& end : ends) {  // it receives that itself when it arrives
      INFO(end.sentence);
      CHECK(end.id == "ranks.failed");
      CHECK(end.says("rank 2 did not arrive within 1000 ms"));
    }
  };
  SECTION("at the creation of the communicator") {
    check([&](const Threads& host) {
      if (host.rank() == 2) until_others_end();
      const Nccl nccl(host, Device{host.rank()}, patience);
    });
  }
  SECTION("at NCCL's part of it") {
    library().faults = {{"ncclCommInitRankConfig", 2, ncclSuccess, false, until_others_end}};
    check([&](const Threads& host) { const Nccl nccl(host, Device{host.rank()}, patience); });
  }
  SECTION("at a call") {
    check([&](const Threads& host) {
      const Nccl nccl(host, Device{host.rank()}, patience);
      Device::Stream stream;
      if (host.rank() == 2) until_others_end();
      everything(nccl, stream);
    });
  }
}

TEST_CASE("if all ranks answer, a call that does not end is an error of NCCL") {
  const Fresh fresh;
  library().hangs = true;
  const auto ends = run(2, [&](const Threads& host) {
    const Nccl nccl(host, Device{host.rank()}, patience);
    Device::Stream stream;
    std::vector<std::uint64_t> numbers{1};
    nccl.all_reduce(numbers, Reduction::sum, stream);
    nccl.wait(stream);
  });
  for (const End& end : ends) CHECK(end.id == "ranks.nccl");
  CHECK(std::any_of(ends.begin(), ends.end(), [](const End& end) {  // the other one may receive its end
    return end.says("a stream did not complete within 1000 ms, though all ranks have called it");
  }));
}

TEST_CASE("ranks with different calls are named with their calls") {
  const Fresh fresh;
  const auto ends = run(3, [&](const Threads& host) {
    const Nccl nccl(host, Device{host.rank()}, patience);
    Device::Stream stream;
    std::vector<std::uint64_t> numbers{1};
    if (host.rank() != 1) nccl.broadcast(std::as_writable_bytes(std::span(numbers)), 0, stream);
    nccl.all_reduce(numbers, Reduction::sum, stream);
    nccl.wait(stream);
  });
  for (const End& end : ends) CHECK(end.id == "ranks.out-of-step");
  CHECK(ends[0].says("rank 1 has made 1 calls of NCCL, and rank 0 2"));
  CHECK(ends[1].says("rank 0 has made 2 calls of NCCL, and rank 1 1"));
}

TEST_CASE("another version of NCCL, and one device for two ranks, are rejected") {
  {
    const Fresh fresh;
    library().versions[1] = 22000;
    const auto ends = run(3, [&](const Threads& host) { const Nccl nccl(host, Device{host.rank()}); });
    for (const End& end : ends) CHECK(end.says("rank 1 expected the same version of NCCL as rank 0, found another"));
  }
  {
    const Fresh fresh;
    const auto ends = run(2, [&](const Threads& host) { const Nccl nccl(host, Device{0}); });
    for (const End& end : ends) CHECK((end.id == "ranks.nccl" || end.id == "ranks.failed"));
  }
}

TEST_CASE("the host communicator may be a single rank") {
  const Fresh fresh;
  fake::nccl::rank = 0;
  const ranks::Nccl<Device, ranks::Alone> nccl(ranks::Alone{}, Device{});
  CHECK(nccl.split(0, 0).size() == 1);
  CHECK(wrong_answers(nccl, 1) == 0);
}

TEST_CASE("the fake detects violations of its rules") {
  const Fresh fresh;
  fake::nccl::rank = 0;
  current_device = 0;
  const auto breaches = [] { return std::exchange(library().breaches, {}).size(); };
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
  CHECK(breaches() == 1);  // it may block
  Device::Stream stream;
  char byte = 0;
  const auto call = [&] { ncclBroadcast(&byte, &byte, 1, ncclUint8, 0, comm, stream.handle()); };
  const auto settle = [&] {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
  };
  call();
  CHECK(breaches() == 1);  // it is not open
  settle();
  call();
  CHECK(breaches() == 0);
  call();
  CHECK(breaches() == 1);  // the last call is in progress
  settle();
  current_device = 1;
  call();
  CHECK(breaches() == 1);  // another device
  current_device = 0;
  settle();
  ncclGroupEnd();
  CHECK(breaches() == 1);  // no group
  ncclCommDestroy(comm);
  CHECK(breaches() == 1);  // not finalized
  call();
  CHECK(breaches() == 1);  // gone
}
