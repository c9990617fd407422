// One client connection: reads requests and writes answers in order, on one thread.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "http/answer.hpp"
#include "http/reader.hpp"
#include "http/server.hpp"

namespace serve {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

/// State shared by all threads of a server.
struct ServerState {
  HttpOptions options;
  Handler handler;
  std::atomic<bool> draining{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> requests{0};
  std::atomic<std::size_t> streams{0};
  std::atomic<std::size_t> body_bytes{0};  // of requests being read
  std::atomic<std::uint64_t> slow_readers{0};
  std::atomic<std::uint64_t> refused{0};

  std::string error_body(int status, std::string_view message) const;
  std::string unavailable() const;  // the complete answer to a connection over the limit
};

class Connection;

/// The target of an exchange's `wake`: it may outlive the exchange, the connection and the server.
struct Wakeup {
  std::atomic<bool> pending{false};
  Connection* connection = nullptr;  // accessed by its thread only; null after the exchange's end
};

/// Passes wake-ups from any thread to a loop's thread, batched.
class Mailbox {
 public:
  explicit Mailbox(asio::io_context& context) : context_(&context) {}
  void put(std::shared_ptr<Wakeup> wakeup);
  void close();  // its loop has ended

 private:
  std::vector<std::shared_ptr<Wakeup>> take();

  std::mutex mutex_;
  asio::io_context* context_;
  std::vector<std::shared_ptr<Wakeup>> woken_;
};

/// A thread and its connections.
class Loop {
 public:
  explicit Loop(ServerState& state);

  void run();
  asio::io_context& context() { return context_; }

  // Called on its thread:
  void adopt(asio::ip::tcp::socket socket);
  void forget(Connection& connection) { connections_.erase(&connection); }
  void close_waiting();  // connections without a request
  void close();          // all, permanently

  ServerState& state;
  std::shared_ptr<Mailbox> mailbox;
  std::array<char, 16 << 10> buffer{};  // receive buffer

 private:
  void tick();
  template <class Function>
  void for_each(Function function);

  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer timer_;
  Clock::duration period_;
  bool closed_ = false;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, asio::ip::tcp::socket socket);

  void start();
  void woken();
  void tick(Clock::time_point now);
  void close();
  bool waiting() const { return !reader_ && !answer_ && input_.empty() && !lingering_; }

 private:
  void advance();
  void read_input();
  void count_body(std::size_t bytes);
  void begin_answer(ReadRequest request);
  void open_answer(AnswerWriter::Form form);
  void refuse(int status, std::string_view message);
  void poll();
  void note_answer();  // updates after a call of the exchange
  void fail();
  void end_exchange();
  void drop_answer();
  void finish_answer();

  void send();
  void watch_input();
  void watch_output();
  void receive();
  void show_life();
  template <class Function>
  void guarded(Function function);

  bool input_full() const { return input_.size() >= loop_.buffer.size(); }
  bool left();  // whether the client has closed; detected only after all its input is read
  std::size_t unsent() const { return output_.size() - sent_; }
  const HttpLimits& limits() const { return loop_.state.options.limits; }

  Loop& loop_;
  asio::ip::tcp::socket socket_;
  std::string input_;  // read but not processed
  std::string output_;
  std::size_t sent_ = 0;        // bytes of output_ already sent
  std::size_t body_bytes_ = 0;  // counted in ServerState::body_bytes
  std::unique_ptr<RequestReader> reader_;
  std::optional<AnswerWriter> answer_;
  std::unique_ptr<Exchange> exchange_;
  std::shared_ptr<Wakeup> wakeup_;
  Clock::time_point since_;     // start of the head, the body, the idle wait or the lingering
  Clock::time_point progress_;  // time of the last write
  bool poll_due_ = false;
  bool reused_ = false;     // a request has been answered
  bool streaming_ = false;  // counted as a stream
  bool input_watched_ = false;
  bool output_watched_ = false;
  bool input_ended_ = false;
  bool lingering_ = false;
  bool closed_ = false;
};

}  // namespace serve
