// The HTTP server with a handler that answers by the path. `http_test_server [NAME=VALUE...]` sets limits, prints its
// port, and executes lines of its standard input: counters, drain MILLISECONDS, stop.
#include "http/server.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"

namespace {

using std::chrono::milliseconds;

std::atomic<int> made{0};
std::atomic<int> alive{0};

/// Wakes every recent exchange, ended or not, from another thread.
class Ticker {
 public:
  Ticker() : thread_([this] { run(); }) {}
  ~Ticker() {
    ended_ = true;
    thread_.join();
  }

  void add(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wakes_.emplace_back(std::move(wake), 0);
  }

 private:
  void run() {
    while (!ended_) {
      std::this_thread::sleep_for(milliseconds(5));
      const std::lock_guard lock(mutex_);
      std::erase_if(wakes_, [](auto& wake) {
        wake.first();
        return ++wake.second > 1000;
      });
    }
  }

  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::vector<std::pair<std::function<void()>, int>> wakes_;
  std::thread thread_;
};

class TestExchange : public serve::Exchange {
 public:
  TestExchange(serve::HttpRequest request, std::function<void()> wake)
      : request_(std::move(request)), wake_(std::move(wake)) {
    number_ = std::atoi(request_.query.c_str());
    ++made;
    ++alive;
  }
  ~TestExchange() override { --alive; }

  void poll(serve::HttpOutput& out) override {
    ++polls_;
    const auto& path = request_.path;
    if (path == "/echo") {
      out.answer(200, "text/plain",
                 request_.method + "|" + request_.query + "|" + request_.content_type + "|" + request_.authorization +
                     "|" + request_.body);
    } else if (path == "/empty") {
      out.answer(204, "", "");
    } else if (path == "/bytes") {
      out.answer(200, "application/octet-stream", std::string(static_cast<std::size_t>(number_), 'x'),
                 {{"X-Extra", "a\r\nb"}});
    } else if (path == "/events") {  // all at the same time
      out.begin(200, "text/event-stream");
      for (int i = 0; i < number_; ++i) out.write(event(i));
      out.end();
    } else if (path == "/ticks") {  // one per tick
      if (polls_ == 1) return out.begin(200, "text/event-stream");
      out.write(event(polls_ - 2));
      if (polls_ == number_ + 1) out.end();
    } else if (path == "/later") {  // complete, after some ticks
      if (polls_ > number_) out.answer(200, "text/plain", "late");
    } else if (path == "/flood") {  // as fast as possible
      if (polls_ == 1) out.begin(200, "text/event-stream");
      out.write(std::string(16 << 10, 'x'));
      wake_();
    } else if (path == "/quiet") {
      if (polls_ == 1) out.begin(200, "text/event-stream");
    } else if (path == "/throws") {
      throw std::runtime_error("secret");
    } else if (path == "/breaks") {
      if (polls_ == 1) return out.begin(200, "text/event-stream");
      throw std::runtime_error("secret");
    } else if (path != "/never") {
      out.answer(404, "text/plain", request_.method + "\n" + path + "\n" + request_.query + "\n" + request_.body);
    }
  }

  void idle(serve::HttpOutput& out) override { out.write(": keep-alive\n\n"); }

 private:
  static std::string event(int number) { return slm::text("data: ", number, "\n\n"); }

  serve::HttpRequest request_;
  std::function<void()> wake_;
  int number_ = 0;
  int polls_ = 0;
};

serve::HttpOptions options_of(int argc, char** argv) {
  serve::HttpOptions options;
  std::map<std::string, long> numbers;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string name = argument.substr(0, argument.find('=')), value = argument.substr(argument.find('=') + 1);
    if (name == "host") {
      options.host = value;
    } else if (name == "cors") {
      options.cors = serve::CorsPolicy({value});
    } else {
      numbers[name] = std::stol(value);
    }
  }
  auto& limits = options.limits;
  const auto set = [&numbers](const char* name, auto& field) {
    if (numbers.count(name)) field = std::remove_reference_t<decltype(field)>(numbers[name]);
    numbers.erase(name);
  };
  set("port", options.port);
  set("threads", options.io_threads);
  set("body_bytes", limits.body_bytes);
  set("body_speed", limits.body_bytes_per_second);
  set("all_body_bytes", limits.all_body_bytes);
  set("unread_bytes", limits.unread_bytes);
  set("connections", limits.connections);
  set("head_time", limits.head_time);
  set("body_time", limits.body_time);
  set("idle_time", limits.idle_time);
  set("silence", limits.silence);
  set("write_time", limits.write_time);
  set("linger_time", limits.linger_time);
  if (!numbers.empty()) throw slm::Error("no such limit: " + numbers.begin()->first);
  options.error_body = [](int status, std::string_view message) {
    return slm::text("{\"error\":{\"code\":", status, ",\"message\":\"", message, "\"}}");
  };
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  std::optional<Ticker> ticker;  // which clients use after they know the port
  serve::HttpServer server(options_of(argc, argv), [&ticker](serve::HttpRequest request, std::function<void()> wake) {
    if (request.path == "/unhandled") throw std::runtime_error("secret");
    const bool ticks =
        request.path == "/ticks" || request.path == "/later" || request.path == "/breaks" || request.path == "/never";
    if (ticks) ticker->add(wake);
    return std::make_unique<TestExchange>(std::move(request), std::move(wake));
  });
  server.start();
  ticker.emplace();
  std::cout << server.port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "counters") {
      const auto counters = server.counters();
      std::cout << slm::text("{\"connections\":", counters.connections, ",\"requests\":", counters.requests,
                             ",\"streams\":", counters.streams, ",\"slow_readers\":", counters.slow_readers,
                             ",\"refused\":", counters.refused, ",\"made\":", made.load(), ",\"alive\":", alive.load(),
                             "}")
                << std::endl;
    } else if (command == "drain") {
      int most = 0;
      words >> most;
      std::cout << (server.drain(milliseconds(most)) ? "true" : "false") << std::endl;
    } else if (command == "stop") {
      server.stop();
      std::cout << alive << std::endl;
    }
  }
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
