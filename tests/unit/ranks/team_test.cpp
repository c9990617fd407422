// A team: rank 0's messages arrive complete and in order, its end is announced, and a missing rank is detected even
// without messages.
#include "slm/ranks/team.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "slm/ranks/alone.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"

using namespace slm;
using namespace slm::testing;
using ranks::Message;
using ranks::run_threads;
using ranks::Threads;
using std::chrono::milliseconds;
using Team = ranks::Team<Threads>;

namespace {

void send_all(Team& team, const Message& message) {
  const auto speaks = team.lock();
  team.send_all(message);
}

std::vector<int> numbers_up_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

TEST_CASE("a message is read as written, and not beyond its end") {
  Message message;
  message.put(7).put_text("seven").put_all(std::span<const int>(numbers_up_to(3))).put('x');
  CHECK(message.take<int>() == 7);
  CHECK(message.take_text() == "seven");
  std::vector<int> numbers;
  message.take_all(numbers);
  CHECK(numbers == numbers_up_to(3));
  CHECK(error_id([&] { message.take<int>(); }) == "ranks.out-of-step");
  CHECK(message.take<char>() == 'x');
  Message lies;
  lies.put<std::uint64_t>(~std::uint64_t{0} / 4);
  CHECK(error_id([&] { lies.take_all(numbers); }) == "ranks.out-of-step");
}

TEST_CASE("messages of any length arrive complete and in order, from any thread; then the end") {
  run_threads(3, [](const Threads& ranks) {
    Team team(ranks, milliseconds(4));  // often enough to fall between messages
    if (team.leads()) {
      for (const int size : {0, 1, 1000, 1021, 1022, 1023, 100000}) {
        std::jthread([&] { send_all(team, Message{}.put_all(std::span<const int>(numbers_up_to(size)))); });
        if (size == 1000) std::this_thread::sleep_for(milliseconds(30));
      }
      return;
    }
    for (const int size : {0, 1, 1000, 1021, 1022, 1023, 100000}) {
      std::optional<Message> message = team.next();
      std::vector<int> numbers;
      if (message) message->take_all(numbers);
      if (numbers != numbers_up_to(size)) throw std::runtime_error("another message");
    }
    if (team.next()) throw std::runtime_error("a message too many");
  });
}

TEST_CASE("a team of one sends nothing") {
  ranks::Team<ranks::Alone> team{ranks::Alone{}};
  CHECK(team.leads());
  const auto speaks = team.lock();
  team.send_all(Message{}.put(1));
}

TEST_CASE("a missing rank is detected without messages") {
  std::atomic<bool> told_first{false};
  CHECK(error_id([&] {
          run_threads(
              2,
              [&](const Threads& ranks) {
                auto team = std::make_unique<Team>(ranks, milliseconds(20));
                if (!team->leads()) return;  // its thread ends without a message
                const auto begin = std::chrono::steady_clock::now();
                while (team->failure().empty() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
                  std::this_thread::sleep_for(milliseconds(5));
                told_first = !team->failure().empty();
                send_all(*team, Message{});
              },
              milliseconds(200));
        }) == "ranks.failed");
  CHECK(told_first);
}

TEST_CASE("the loss of rank 0 ends the others' wait") {
  CHECK(error_id([] {
          run_threads(
              2,
              [](const Threads& ranks) {
                Team team(ranks, milliseconds(20));
                if (team.leads()) {
                  const auto speaks = team.lock();
                  team.give_up();
                } else {
                  team.next();
                }
              },
              milliseconds(200));
        }) == "ranks.failed");
}
