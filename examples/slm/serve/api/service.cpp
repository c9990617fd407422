// The thread of the engine.
#include "api/service.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

#include "slm/core/start_thread.hpp"
#include "slm/engine/engine.hpp"

namespace serve {

namespace {

class EngineService final : public Service {
 public:
  EngineService(slm::Drafter draft, slm::AnyModel target, const slm::EngineOptions& options)
      : engine_(std::move(draft), std::move(target), options),
        thread_(slm::detail::start_thread([this] { run(stop_.get_token()); })) {}

  ~EngineService() override { stop_.request_stop(); }

  slm::Answer submit(slm::Request request, const slm::Scheduling& scheduling, std::function<void()> wake) override {
    return engine_.submit(std::move(request), scheduling, std::move(wake));
  }
  slm::EngineStats stats() const override { return engine_.stats(); }
  std::string fault() override {
    const std::lock_guard lock(mutex_);
    if (fault_.empty()) return {};
    const slm::EngineStats now = engine_.stats();
    if (now.steps > steps_before_fault_) {
      fault_.clear();
    } else if (now.waiting + now.running == 0) {
      engine_.submit({.prompt = {0}, .sampling = {.max_new_tokens = 1}}).detach();
    }
    return fault_;
  }

 private:
  void run(const slm::CancelToken& stop) {
    while (!stop.stop_requested()) {
      try {
        engine_.run(stop);
      } catch (const slm::Error& error) {
        if (error.id().starts_with("ranks.")) end_server(error);
        failed(error.id());
      } catch (const std::exception&) {
        failed("serve.engine-fault");
      }
    }
  }

  /// A model that has lost a rank cannot recover: the server drains and exits, so that its supervisor can restart the
  /// ranks.
  static void end_server(const slm::Error& error) {
    std::cerr << "slm: " << error.what() << '\n';
    std::raise(SIGTERM);
  }

  /// A failed device may fail again at once: delays the next attempt.
  void failed(const std::string& id) {
    {
      const std::lock_guard lock(mutex_);
      fault_ = id;
      steps_before_fault_ = engine_.stats().steps;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  slm::Engine<> engine_;
  mutable std::mutex mutex_;
  std::string fault_;
  std::int64_t steps_before_fault_ = 0;
  slm::CancelSource stop_;
  slm::detail::JoinedThread thread_;  // the last member: it ends before the others
};

}  // namespace

std::unique_ptr<Service> make_service(slm::Drafter draft, slm::AnyModel target, const slm::EngineOptions& options) {
  return std::make_unique<EngineService>(std::move(draft), std::move(target), options);
}

}  // namespace serve
