// ranks::Threads: ranks as threads of one process, for tests and for several devices of one host.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/start_thread.hpp"
#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

class Threads {
 public:
  /// The ranks of a new group. A rank that is late by more than `patience` counts as failed.
  static std::vector<Threads> group(int size, std::chrono::milliseconds patience = std::chrono::seconds(60)) {
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    const auto state = std::make_shared<Group>(std::make_shared<World>(), std::move(all), patience);
    std::vector<Threads> members;
    for (int rank = 0; rank < size; ++rank) members.push_back(Threads(state, rank));
    return members;
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(group_->members.size()); }

  void broadcast(std::span<std::byte> bytes, int root) const {
    exchange({Call::broadcast, root, bytes.data(), bytes.size()}, [&](std::span<const Post> posts) {
      if (rank_ != root) std::copy_n(posts[static_cast<std::size_t>(root)].data, bytes.size(), bytes.begin());
    });
  }

  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes,
                  std::span<std::byte> all) const {
    std::size_t total = 0;
    for (const std::size_t size : sizes) total += size;
    const bool fits = sizes.size() == group_->members.size() && sizes[static_cast<std::size_t>(rank_)] == share.size();
    exchange({Call::all_gather, 0, share.data(), fits && total == all.size() ? total : nothing},
             [&](std::span<const Post> posts) {
               std::byte* to = all.data();
               for (std::size_t r = 0; r < sizes.size(); ++r) to = std::copy_n(posts[r].data, sizes[r], to);
             });
  }

  void all_reduce(std::span<std::uint64_t> numbers, Reduction reduction) const {
    const std::vector<std::uint64_t> mine(numbers.begin(), numbers.end());
    const auto bytes = std::as_bytes(std::span(mine));
    exchange({Call::all_reduce, static_cast<int>(reduction), bytes.data(), bytes.size()},
             [&](std::span<const Post> posts) {
               for (std::size_t r = 0; r < posts.size(); ++r) {
                 const auto* others = reinterpret_cast<const std::uint64_t*>(posts[r].data);
                 for (std::size_t i = 0; r != static_cast<std::size_t>(rank_) && i < numbers.size(); ++i)
                   numbers[i] = reduction == Reduction::sum ? numbers[i] + others[i] : std::max(numbers[i], others[i]);
               }
             });
  }

  void barrier() const {
    exchange({Call::barrier, 0, nullptr, 0}, [](std::span<const Post>) {});
  }

  Threads split(int color, int key) const {
    struct SplitKey {
      int color, key;
    } const mine{color, key};
    std::vector<std::pair<int, int>> order;  // key, rank
    exchange({Call::split, 0, reinterpret_cast<const std::byte*>(&mine), sizeof mine},
             [&](std::span<const Post> posts) {
               for (std::size_t r = 0; r < posts.size(); ++r) {
                 const auto& split_key = *reinterpret_cast<const SplitKey*>(posts[r].data);
                 if (split_key.color == color) order.emplace_back(split_key.key, static_cast<int>(r));
               }
             });
    std::sort(order.begin(), order.end());
    std::vector<int> members;
    int place = 0;
    for (const auto& [its_key, rank] : order) {
      if (rank == rank_) place = static_cast<int>(members.size());
      members.push_back(group_->members[static_cast<std::size_t>(rank)]);
    }
    std::shared_ptr<Group> own;
    if (place == 0) own = std::make_shared<Group>(group_->world, std::move(members), group_->patience);
    const int first = order.front().second;  // creates the group; the others copy it
    exchange({Call::split, 0, reinterpret_cast<const std::byte*>(&own), sizeof mine}, [&](std::span<const Post> posts) {
      if (place == 0) return;
      own = *reinterpret_cast<const std::shared_ptr<Group>*>(posts[static_cast<std::size_t>(first)].data);
    });
    return {std::move(own), place};
  }

  /// Makes all ranks of related groups (split from or into) throw ranks.failed.
  void fail(std::string_view reason) const {
    std::string sentence;
    try {
      sentence = text("rank ", group_->members[static_cast<std::size_t>(rank_)], " has failed: ", reason);
    } catch (const std::bad_alloc&) {  // the others must be notified anyway
    }
    const std::lock_guard lock(group_->world->mutex);
    note_failure(std::move(sentence));
  }
  void poll() const {
    const std::lock_guard lock(group_->world->mutex);
    throw_failure();
  }

 private:
  enum class Call { broadcast, all_gather, all_reduce, barrier, split };
  static constexpr std::size_t nothing = ~std::size_t{0};  // bytes of a call with inconsistent sizes

  /// The arguments of a rank's call.
  struct Post {
    Call call = Call::barrier;
    int number = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Shared by all groups split from one.
  struct World {
    std::mutex mutex;
    std::condition_variable news;
    bool failed = false;
    std::string failure;  // empty if there was no memory for it
  };

  struct Group {
    Group(std::shared_ptr<World> of, std::vector<int> ranks, std::chrono::milliseconds limit)
        : world(std::move(of)),
          members(std::move(ranks)),
          patience(limit),
          posts(members.size()),
          meetings(members.size()) {}

    std::shared_ptr<World> world;
    std::vector<int> members;  // ranks in the first group
    std::chrono::milliseconds patience;
    std::vector<Post> posts;
    std::vector<std::uint64_t> meetings;  // number of meetings per rank
  };

  Threads(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  /// Exchanges the posts of all ranks.
  template <class Take>
  void exchange(const Post& post, Take take) const {
    meet(post);
    check(post);
    try {
      take(std::span<const Post>(group_->posts));
    } catch (...) {
      part();  // the others wait there
      throw;
    }
    part();
  }

  /// Waits until every rank has arrived with its post.
  void meet(const Post& post) const {
    Group& group = *group_;
    World& world = *group.world;
    std::unique_lock lock(world.mutex);
    throw_failure();
    group.posts[static_cast<std::size_t>(rank_)] = post;
    const std::uint64_t meeting = count_meeting();
    const auto all_there = [&] { return world.failed || late(meeting) == group.meetings.end(); };
    if (!world.news.wait_for(lock, group.patience, all_there)) {
      note_failure(text("rank ", group.members[static_cast<std::size_t>(late(meeting) - group.meetings.begin())],
                        " did not arrive within ", group.patience.count(), " ms"));
    }
    if (late(meeting) != group.meetings.end()) throw_failure();
  }

  /// Waits until every rank has read the posts, which refer to all ranks' memory. This holds even after a failure, and
  /// without a timeout, since the ranks only have bytes to copy.
  void part() const {
    std::unique_lock lock(group_->world->mutex);
    const std::uint64_t meeting = count_meeting();
    group_->world->news.wait(lock, [&] { return late(meeting) == group_->meetings.end(); });
  }

  /// Requires the world's mutex.
  std::uint64_t count_meeting() const {
    group_->world->news.notify_all();
    return ++group_->meetings[static_cast<std::size_t>(rank_)];
  }
  std::vector<std::uint64_t>::const_iterator late(std::uint64_t meeting) const {
    return std::find_if(group_->meetings.begin(), group_->meetings.end(),
                        [meeting](std::uint64_t others) { return others < meeting; });
  }

  /// Throws ranks.out-of-step, on all ranks, unless all have made the same call.
  void check(const Post& mine) const {
    for (std::size_t r = 0; r < group_->posts.size(); ++r) {
      const Post& post = group_->posts[r];
      const bool same = post.call == mine.call && post.number == mine.number && post.bytes == mine.bytes;
      if (same && mine.bytes != nothing) continue;
      throw Error("ranks.out-of-step",
                  text("rank ", group_->members[r], "'s call differs from that of rank ",
                       group_->members[static_cast<std::size_t>(rank_)], ", or it has other sizes"),
                  "Let all ranks run the same program on the same requests");
    }
  }

  /// Requires the world's mutex.
  void note_failure(std::string sentence) const {
    World& world = *group_->world;
    if (!world.failed) world.failure = std::move(sentence);
    world.failed = true;
    world.news.notify_all();
  }
  void throw_failure() const {
    const World& world = *group_->world;
    if (!world.failed) return;
    throw Error("ranks.failed", world.failure.empty() ? "a rank has failed for lack of memory" : world.failure,
                "Fix that rank's failure, and start all ranks again");
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

static_assert(Communicator<Threads>);

/// Runs body(ranks) for every rank of a new group, each on its own thread. If a rank throws or its thread cannot be
/// started, the others throw too. The first exception is rethrown here.
template <class Body>
void run_threads(int size, Body&& body, std::chrono::milliseconds patience = std::chrono::seconds(60)) {
  const std::vector<Threads> group = Threads::group(size, patience);
  std::mutex mutex;
  std::exception_ptr first;
  const auto succeeds = [&](const Threads& ranks, auto&& action) noexcept {
    try {
      action();
      return true;
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      fail_with_exception(ranks);  // running ranks must not wait for this one
      return false;
    }
  };
  {
    std::vector<detail::JoinedThread> threads;
    threads.reserve(group.size());
    for (const Threads& ranks : group) {
      const auto run = [&succeeds, &body, &ranks] { succeeds(ranks, [&] { body(ranks); }); };
      if (!succeeds(ranks, [&] { threads.push_back(detail::start_thread(run)); })) break;
    }
  }
  if (first) std::rethrow_exception(first);
}

}}}
